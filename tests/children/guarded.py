"""A child that runs by itself, and does what it is asked."""

from __future__ import annotations

import os
import time

from penstock.children.answering import begin

if __name__ == "__main__":
    parent = begin()
    questions = parent.documents()
    orders = next(questions)
    parent.say({"ready": True})
    for question in questions:
        if question["ask"] == "hang":
            time.sleep(3600)
        elif question["ask"] == "die":
            os._exit(3)
        elif question["ask"] == "nonsense":
            parent.answer(b"{")
        else:
            parent.say({"id": question["id"], "pid": os.getpid(), **orders})
