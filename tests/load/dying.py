"""Stands in for a sending process: the second dies, the first has nothing to say for long."""

from __future__ import annotations

import time

from penstock.children.answering import begin

if __name__ == "__main__":
    parent = begin()
    if next(parent.documents())["number"]:
        raise SystemExit(3)
    parent.say({"ready": True})
    time.sleep(600)
