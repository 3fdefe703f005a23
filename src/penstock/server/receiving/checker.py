"""The process that checks large requests, off the event loop of the one that receives.

    python -m penstock.server.receiving.checker

    question := (signal:u8 json:u8 records:u64 parts:u64) request
    answer   := (outcome:u8 changed:u8 records:u64 rejected:u64) text request

`signal` is its place in `Signal`; `records` and `parts` of a question are the limits. The request
of an answer is what is to be stored, and empty where that is what came (`changed` is 0). The text
says why it is refused, what was rejected of it, or what else its sender should know.
"""

from __future__ import annotations

import contextlib
import enum
import resource
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.children.answering import NICENESS, begin
from penstock.model.errors import InvalidArgument
from penstock.model.settings import GIB
from penstock.otel.signals import Signal
from penstock.otel.validate import RequestLimits, check_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.children.frames import Part

MEMORY_BYTES: Final = GIB
"""More is not given to a check; what needs it is refused as too large."""
_QUESTION: Final = struct.Struct("<BBQQ")
_ANSWER: Final = struct.Struct("<BBQQ")
_SIGNALS: Final = tuple(Signal)


class Outcome(enum.IntEnum):
    """What became of it."""

    SOUND = 0
    INVALID = 1
    TOO_LARGE = 2


class Checked(NamedTuple):
    """What a check has found."""

    outcome: Outcome
    data: bytes = b""
    records: int = 0
    rejected: int = 0
    text: str = ""


def check(signal: Signal, data: bytes, limits: RequestLimits, *, is_json: bool) -> Checked:
    """Whether the request can be stored, and as what."""
    warning = ""
    try:
        if is_json:
            from penstock.otel.from_json import request_from_json

            data, warning = request_from_json(signal, data, max_parts=limits.max_parts)
        found = check_request(signal, data, limits)
    except InvalidArgument as error:
        return Checked(Outcome.INVALID, text=str(error))
    except MemoryError:
        text = f"the request takes more than {MEMORY_BYTES} bytes of memory to read"
        return Checked(Outcome.TOO_LARGE, text=text)
    return Checked(
        Outcome.SOUND, found.data, found.records, found.rejected, found.problem or warning
    )


def question(signal: Signal, data: bytes, limits: RequestLimits, *, is_json: bool) -> list[Part]:
    """What the process is asked."""
    number = _SIGNALS.index(signal)
    return [_QUESTION.pack(number, is_json, limits.max_records, limits.max_parts), data]


def answer(head: bytes, data: bytes) -> list[Part]:
    number, is_json, records, parts = _QUESTION.unpack(head)
    limits = RequestLimits(max_records=records, max_parts=parts)
    found = check(_SIGNALS[number], data, limits, is_json=bool(is_json))
    changed = found.data is not data
    numbers = _ANSWER.pack(found.outcome, changed, found.records, found.rejected)
    return [numbers, found.text.encode("utf-8", "replace"), found.data if changed else b""]


def checked(answer: Sequence[memoryview], asked: bytes) -> Checked:
    """What the answer says of the request that was asked about."""
    head, text, data = answer
    outcome, changed, records, rejected = _ANSWER.unpack(head)
    kept = bytes(data) if changed else asked
    return Checked(Outcome(outcome), kept, records, rejected, bytes(text).decode())


def serve() -> None:
    """Answers questions until there are no more."""
    parent = begin(niceness=NICENESS)
    with contextlib.suppress(ValueError, OSError):  # somebody has set a lower one
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    for head, data in parent.questions():
        parent.answer(*answer(head, data))
        del data  # not held while it waits for the next


if __name__ == "__main__":
    serve()
