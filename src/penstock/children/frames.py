"""What goes over the pipes between a process and its child.

    message := count:u32 length:u64[count] bytes*

A list of byte strings. One without any ends the answers to a question that has several. Whoever
reads bounds what it takes, before it makes room for it.
"""

from __future__ import annotations

import json
import struct
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

Part: TypeAlias = bytes | bytearray | memoryview
COUNT: Final = struct.Struct("<I")
MOST_PARTS: Final = 1 << 24
MOST_BYTES: Final = 1 << 36
_COPIED_BYTES: Final = 1 << 20
"""A larger part is not copied to be written with the others at once."""


class FrameTooLarge(ValueError):
    """The other side says more than it may, or something else than messages."""


def pieces(parts: Sequence[Part]) -> list[Part]:
    """What is written for a message: all of it at once, unless that copied much."""
    head = struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))
    if max(map(len, parts), default=0) > _COPIED_BYTES:
        return [head, *parts]
    return [b"".join([head, *parts])]


def count_of(head: Part) -> int:
    """How many parts follow, and so many lengths before them."""
    count: int = COUNT.unpack(head)[0]
    if count > MOST_PARTS:
        raise FrameTooLarge(f"a message of {count} parts")
    return count


def lengths_of(data: Part, most_bytes: int) -> tuple[int, ...]:
    """Of the parts; FrameTooLarge before anybody makes room for them."""
    lengths = struct.unpack(f"<{len(data) // 8}Q", data)
    if sum(lengths) > most_bytes:
        raise FrameTooLarge(f"a message of {sum(lengths)} bytes, where {most_bytes} are expected")
    return lengths


def read_message(file: IO[bytes]) -> list[bytes] | None:
    """The next, each part as it was read; None at the end of the file, or within a message."""
    head = file.read(COUNT.size)
    if len(head) < COUNT.size:
        return None
    size = 8 * count_of(head)
    data = file.read(size)
    if len(data) < size:
        return None
    lengths = lengths_of(data, MOST_BYTES)
    parts = [file.read(length) for length in lengths]
    return parts if lengths == tuple(map(len, parts)) else None


async def read_message_async(stream: asyncio.StreamReader, most_bytes: int) -> list[bytes]:
    """The next; asyncio.IncompleteReadError where there is none."""
    count = count_of(await stream.readexactly(COUNT.size))
    lengths = lengths_of(await stream.readexactly(8 * count), most_bytes)
    return [await stream.readexactly(length) for length in lengths]


def write_message(file: IO[bytes], parts: Sequence[Part]) -> None:
    for piece in pieces(parts):
        file.write(piece)
    file.flush()


def encode_document(document: Any) -> bytes:
    """As JSON, for what is small and has names."""
    return json.dumps(document).encode()


def decode_document(part: Part) -> Any:
    """What `encode_document` made."""
    return json.loads(bytes(part))
