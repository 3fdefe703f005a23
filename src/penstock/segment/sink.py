"""Takes the bytes of streams from Arrow, checksums them part by part and writes them in runs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from isal.isal_zlib import crc32

from penstock.segment import format as fmt
from penstock.segment.tables import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.storage.files import Buffer, File

RUN_BYTES: Final = 4 * 1024 * 1024
"""Written at once when this much waits."""
_SMALL_WRITES_BYTES: Final = 8 * 1024


class Sink:
    """The end of a file that is being written. Holds no more than a run and one chunk."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._written = 0
        self._waiting: list[Buffer] = []
        self._part: list[Buffer] = []
        self.position = 0

    def put(self, data: bytes) -> None:
        """Bytes that belong to no stream."""
        self._waiting.append(data)
        self.position += len(data)

    def align(self) -> None:
        """Zeros up to where a stream may begin."""
        self.put(bytes(fmt.aligned(self.position) - self.position))

    def put_stream(
        self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], compression: str | None
    ) -> list[Part]:
        """An Arrow IPC file of the batches, at least one; returns its parts."""
        start = self.position
        parts: list[Part] = []
        # Small writes are joined before they cross into Python; large buffers pass uncopied.
        out = pa.BufferedOutputStream(pa.PythonFile(_Inlet(self._part), "w"), _SMALL_WRITES_BYTES)
        options = pa.ipc.IpcWriteOptions(compression=compression)
        writer = pa.ipc.new_file(out, schema, options=options)
        for batch in batches:
            writer.write_batch(batch)
            out.flush()
            if not parts:
                parts.append(self._end_part(start, prelude_length(self._part)))
            parts.append(self._end_part(start))
        writer.close()
        out.flush()
        parts.append(self._end_part(start))
        return parts

    def _end_part(self, start: int, length: int | None = None) -> Part:
        """Closes a part: the whole of what has come since the last one, or its first bytes."""
        pieces, self._part[:] = _split(self._part, length)
        crc = 0
        for piece in pieces:
            crc = crc32(piece, crc)
            self.position += len(piece)
        self._waiting += pieces
        if self.position - self._written >= RUN_BYTES:
            self.flush()
        return Part(self.position - start, crc)

    def flush(self) -> None:
        """Writes what waits."""
        self._file.pwrite(self._waiting, self._written)
        self._waiting = []
        self._written = self.position


def _split(pieces: list[Buffer], length: int | None) -> tuple[list[Buffer], list[Buffer]]:
    """The first `length` bytes, or all; and the rest."""
    if length is None:
        return pieces.copy(), []
    first: list[Buffer] = []
    for number, piece in enumerate(pieces):
        if len(piece) > length:
            view = memoryview(piece)
            return [*first, view[:length]], [view[length:], *pieces[number + 1 :]]
        first.append(piece)
        length -= len(piece)
    return first, []


class _Inlet:
    """The file that Arrow sees: it only takes."""

    closed = False

    def __init__(self, pieces: list[Buffer]) -> None:
        self._pieces = pieces

    def write(self, piece: bytes | pa.Buffer) -> int:
        self._pieces.append(memoryview(piece))
        return len(piece)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing to give back."""


# --- Arrow IPC ---------------------------------------------------------------------------------

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
