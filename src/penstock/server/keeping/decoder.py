"""The process that decodes, off the interpreter's lock of the one that receives.

    python -m penstock.server.keeping.decoder

A question is the signal and the messages; an answer has for each bundle how many messages are in
it, the bundle as a log message (empty: there is none), and why.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.children.answering import NICENESS, begin
from penstock.model.errors import PenstockError
from penstock.store.messages import decode_raw, encode_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.children.frames import Part
    from penstock.otel.signals import Signal

_COUNT: Final = struct.Struct("<I")


class Answer(NamedTuple):
    """What became of consecutive messages."""

    messages: int
    bundle: memoryview | bytes | None
    problem: str = ""


def decode(signal: Signal, messages: Sequence[bytes]) -> list[Answer]:
    """Covers every message, in order."""
    from penstock.otel import decode_requests

    requests = [decode_raw(message) or b"" for message in messages]
    answers = []
    for part in decode_requests(signal, requests):
        try:
            bundle = None if part.bundle is None else encode_bundle(part.bundle)
        except PenstockError as error:
            answers.append(Answer(part.count, None, str(error)))
        else:
            answers.append(Answer(part.count, bundle, part.problem))
    return answers


def serve(decode: Callable[[Signal, Sequence[bytes]], list[Answer]]) -> None:
    """Answers questions until there are no more."""
    parent = begin(niceness=NICENESS)
    from penstock.otel import Signal  # once nothing of it imports what is left out

    for signal, *messages in parent.questions():
        parent.answer(*as_parts(decode(Signal(signal.decode()), messages)))


def as_parts(answers: list[Answer]) -> list[Part]:
    """As three byte strings each."""
    parts: list[Part] = []
    for messages, bundle, problem in answers:
        parts += [_COUNT.pack(messages), bundle or b"", problem.encode()]
    return parts


def from_parts(parts: Sequence[memoryview]) -> list[Answer]:
    """What `as_parts` was given; bundles refer to the parts."""
    return [
        Answer(_COUNT.unpack(messages)[0], bundle or None, bytes(problem).decode())
        for messages, bundle, problem in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]


if __name__ == "__main__":
    serve(decode)
