"""What passes between the server and a process that answers queries.

    frame := document_bytes:u32 body_bytes:u32 document body

The document is JSON. A question has no body; an answer's body is what the client gets.
"""

from __future__ import annotations

import json
import struct
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio

_HEAD: Final = struct.Struct("<II")


class Frame(NamedTuple):
    """A document, and bytes that go with it."""

    document: dict[str, Any]
    body: bytes = b""


def encode_frame(document: dict[str, Any], body: bytes = b"") -> bytes:
    """All of it."""
    text = json.dumps(document).encode()
    return b"".join([_HEAD.pack(len(text), len(body)), text, body])


def read_frame(file: IO[bytes]) -> Frame | None:
    """The next; None at the end of the file, or within a frame."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    document, body = _HEAD.unpack(head)
    text, rest = file.read(document), file.read(body)
    whole = len(text) == document and len(rest) == body
    return Frame(json.loads(text), rest) if whole else None


async def read_frame_async(stream: asyncio.StreamReader) -> Frame:
    """The next; asyncio.IncompleteReadError where there is none."""
    document, body = _HEAD.unpack(await stream.readexactly(_HEAD.size))
    text = await stream.readexactly(document)
    return Frame(json.loads(text), await stream.readexactly(body))
