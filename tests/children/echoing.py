"""A child that does what its questions say."""

from __future__ import annotations

import os
import time

from penstock.children.answering import Parent, begin


def serve(parent: Parent) -> None:
    """Each question is an order and what it is about."""
    for order, *parts in parent.questions():
        if order == b"echo":
            parent.answer(*parts)
        elif order == b"print":
            os.write(1, b"a library says hello")
            parent.answer(*parts)
        elif order == b"count":
            for part in parts:
                parent.answer(part)
            parent.answer()
        elif order == b"hang":
            time.sleep(3600)
        elif order == b"grow":
            held = bytearray(400 << 20)
            time.sleep(3600)
            del held
        elif order == b"die":
            os._exit(7)


if __name__ == "__main__":
    serve(begin())
