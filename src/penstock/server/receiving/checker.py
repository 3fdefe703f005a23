"""The process that checks large requests, off the event loop of the one that receives.

    python -m penstock.server.receiving.checker RECORDS PARTS

Takes questions on stdin and answers them on stdout; the end of stdin is its own.

    question := signal:u8 json:u8 length:u64 bytes
    answer   := outcome:u8 records:u32 rejected:u32 text:u32 length:u64 text bytes

`signal` is its place in `Signal`. The bytes of an answer are the request to be stored; there are
none, and their length is the highest number, where it is the one that came. The text says why it is
refused, what was rejected of it, or what else its sender should know.
"""

from __future__ import annotations

import contextlib
import enum
import os
import resource
import struct
import sys
from typing import Final, NamedTuple

from penstock.model.errors import InvalidArgument
from penstock.model.settings import GIB
from penstock.otel.signals import Signal
from penstock.otel.validate import RequestLimits, check_request

MEMORY_BYTES: Final = GIB
"""More is not given to a check; what needs it is refused as too large."""
_NICENESS: Final = 5
QUESTION: Final = struct.Struct("<BBQ")
ANSWER: Final = struct.Struct("<BIIIQ")
AS_IT_CAME: Final = 2**64 - 1
SIGNALS: Final = tuple(Signal)


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


def serve(limits: RequestLimits) -> None:
    """Answers questions until there are no more."""
    os.nice(_NICENESS)
    with contextlib.suppress(ValueError, OSError):  # somebody has set a lower one
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    while head := questions.read(QUESTION.size):
        number, is_json, length = QUESTION.unpack(head)
        data = questions.read(length)
        found = check(SIGNALS[number], data, limits, is_json=bool(is_json))
        text, changed = found.text.encode("utf-8", "replace"), found.data is not data
        length = len(found.data) if changed else AS_IT_CAME
        head = ANSWER.pack(found.outcome, found.records, found.rejected, len(text), length)
        answers.write(head + text)
        if changed:
            answers.write(found.data)
        answers.flush()
        del data, found  # not held while it waits for the next


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # whoever asked was killed
        serve(RequestLimits(max_records=int(sys.argv[1]), max_parts=int(sys.argv[2])))
