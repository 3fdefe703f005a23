"""The process that decodes, off the interpreter's lock of the one that receives.

    python -m penstock.server.keeping.decoder

Takes questions on stdin and answers them on stdout; the end of stdin is its own. Both are lists of
byte strings:

    list := count:u32 length:u32[count] bytes*

A question is the signal and the messages; an answer has for each bundle how many messages are in
it, the bundle as a log message (empty: there is none), and why.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import IO, TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from penstock.model.errors import PenstockError
from penstock.server.lean import leave_out_pandas
from penstock.store.messages import decode_raw, encode_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.otel.signals import Signal

NICENESS: Final = 5
"""Whoever waits for an acknowledgement comes first."""
_COUNT: Final = struct.Struct("<I")


class Answer(NamedTuple):
    """What became of consecutive messages."""

    messages: int
    bundle: memoryview | bytes | None
    problem: str = ""


def decode(signal: Signal, messages: Sequence[bytes | memoryview]) -> list[Answer]:
    """Covers every message, in order."""
    from penstock.otel import decode_requests

    requests = [decode_raw(bytes(message)) or b"" for message in messages]
    answers = []
    for part in decode_requests(signal, requests):
        try:
            bundle = None if part.bundle is None else encode_bundle(part.bundle)
        except PenstockError as error:
            answers.append(Answer(part.count, None, str(error)))
        else:
            answers.append(Answer(part.count, bundle, part.problem))
    return answers


def serve(decode: Callable[[Signal, Sequence[memoryview]], list[Answer]]) -> None:
    """Answers questions until there are no more."""
    from penstock import otel

    leave_out_pandas()
    os.nice(NICENESS)
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    while question := read_list(questions):
        signal = otel.Signal(bytes(question[0]).decode())
        write_answers(answers, decode(signal, question[1:]))


def write_answers(file: IO[bytes], answers: list[Answer]) -> None:
    """As three byte strings each."""
    parts: list[bytes | memoryview] = []
    for messages, bundle, problem in answers:
        parts += [_COUNT.pack(messages), bundle or b"", problem.encode()]
    write_list(file, parts)


def read_answers(file: IO[bytes]) -> list[Answer]:
    """EOFError: the process is no more."""
    parts = read_list(file)
    return [
        Answer(_COUNT.unpack(messages)[0], bundle or None, bytes(problem).decode())
        for messages, bundle, problem in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]


def write_list(file: IO[bytes], parts: Sequence[bytes | memoryview]) -> None:
    """All of it at once."""
    lengths = struct.pack(f"<{len(parts) + 1}I", len(parts), *map(len, parts))
    file.write(b"".join([lengths, *parts]))
    file.flush()


def read_list(file: IO[bytes]) -> list[memoryview]:
    """Parts of one buffer; nothing at the end of the file. EOFError: it ends within a list."""
    head = file.read(_COUNT.size)
    if not head:
        return []
    count = _COUNT.unpack(head)[0]
    lengths = struct.unpack(f"<{count}I", _read(file, _COUNT.size * count))
    data, parts, at = _read(file, sum(lengths)), [], 0
    for length in lengths:
        parts.append(data[at : at + length])
        at += length
    return parts


def _read(file: IO[bytes], size: int) -> memoryview:
    """Into Arrow's memory, which does not go back to the system with every bundle."""
    data = memoryview(pa.allocate_buffer(size))
    if file.readinto(data) < size:  # type: ignore[attr-defined]  # IO lacks what its files have
        raise EOFError("the other process is no more")
    return data


if __name__ == "__main__":
    serve(decode)
