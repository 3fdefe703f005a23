"""Where the prelude of an Arrow IPC file ends: behind its schema and its dictionaries."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.storage.files import Buffer

_MAGIC_BYTES: Final = 8
_RECORD_BATCH: Final = 3
_KIND_FIELD, _BODY_LENGTH_FIELD = 1, 3
_PREFIX = struct.Struct("<Ii")
_TABLE = struct.Struct("<I")
_VTABLE = struct.Struct("<i")
_FIELD = struct.Struct("<H")
_BODY_LENGTH = struct.Struct("<q")


def prelude_length(pieces: Sequence[Buffer]) -> int:
    """The bytes before the first record batch; `pieces` are the file's beginning, up to it."""
    head = _Head(pieces)
    position = _MAGIC_BYTES
    while True:
        _, length = _PREFIX.unpack(head.read(position, _PREFIX.size))
        body = position + _PREFIX.size + length
        kind, body_length = _message(head.read(position + _PREFIX.size, length))
        if kind == _RECORD_BATCH:
            return position
        position = body + body_length


def _message(metadata: bytes) -> tuple[int, int]:
    """The kind of an IPC message and the length of its body, from its flatbuffer."""
    (table,) = _TABLE.unpack_from(metadata)
    vtable = table - _VTABLE.unpack_from(metadata, table)[0]

    def place(field: int) -> int:
        (size,) = _FIELD.unpack_from(metadata, vtable)
        at = 4 + 2 * field
        return int(_FIELD.unpack_from(metadata, vtable + at)[0]) if at < size else 0

    body = place(_BODY_LENGTH_FIELD)
    body_length = _BODY_LENGTH.unpack_from(metadata, table + body)[0] if body else 0
    return metadata[table + place(_KIND_FIELD)], body_length


class _Head:
    """The beginning of some pieces as one, joined no further than it is read."""

    def __init__(self, pieces: Sequence[Buffer]) -> None:
        self._rest = iter(pieces)
        self._joined = bytearray()

    def read(self, position: int, length: int) -> bytes:
        while len(self._joined) < position + length:
            self._joined += next(self._rest)
        return bytes(self._joined[position : position + length])
