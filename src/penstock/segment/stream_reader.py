"""Reads one stream of a segment, chunk by chunk, and decodes nothing that it has not verified."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
from isal.isal_zlib import crc32

from penstock.model.errors import Damaged
from penstock.segment.dictionaries import holds_dictionary

if TYPE_CHECKING:
    from penstock.segment.tables import Footer, StreamEntry


class StreamReader:
    """Safe for several threads. Each part is verified when it is first needed."""

    def __init__(self, segment: memoryview, footer: Footer, entry: StreamEntry) -> None:
        self.entry = entry
        self._footer = footer
        self._bytes = segment[entry.position : entry.position + entry.length]
        self._buffer = pa.py_buffer(self._bytes)
        self._verified: dict[int, tuple[int, int]] = {}
        self._schema: pa.Schema | None = None
        self._arrow: pa.RecordBatchFileReader | None = None
        self._lock = threading.Lock()  # Arrow reads the dictionaries with the first batch

    def batch(self, chunk: int) -> pa.RecordBatch:
        """The chunk, as memory of the file where it is not compressed."""
        if not 0 <= chunk < self.entry.chunks:
            raise Damaged(f"stream {self.entry.id} has no chunk {chunk}")
        schema = self.schema()
        start, end = self._verified_part(chunk + 1)
        try:
            if self._arrow is None:
                return pa.ipc.read_record_batch(self._buffer.slice(start, end - start), schema)
            with self._lock:
                return self._arrow.get_batch(chunk)
        except (pa.ArrowInvalid, OSError) as error:
            reason = f"chunk {chunk} of stream {self.entry.id} cannot be decoded: {error}"
            raise Damaged(reason) from error

    def schema(self) -> pa.Schema:
        """Of all its chunks."""
        return self._schema or self._open()

    def _open(self) -> pa.Schema:
        """The schema. Only where there are dictionaries is Arrow's own reader needed for more."""
        with self._lock:
            if self._schema is not None:
                return self._schema
            self._verified_part(0)
            self._verified_part(self.entry.parts - 1)
            try:
                arrow = pa.ipc.open_file(self._buffer)
            except (pa.ArrowInvalid, OSError) as error:
                raise Damaged(f"stream {self.entry.id} cannot be decoded: {error}") from error
            if arrow.num_record_batches != self.entry.chunks:
                raise Damaged(f"stream {self.entry.id} has a wrong number of chunks")
            if any(holds_dictionary(field.type) for field in arrow.schema):
                self._arrow = arrow
            self._schema = arrow.schema
            return self._schema

    def _verified_part(self, number: int) -> tuple[int, int]:
        """Where the part is. Invariant: Arrow sees only bytes whose CRC holds; others crash it."""
        place = self._verified.get(number)
        if place is None:
            place = self._verified[number] = self.verify_part(number)
        return place

    def verify_part(self, number: int) -> tuple[int, int]:
        """Reads the part's bytes; returns where they are, or Damaged where their CRC is wrong."""
        start, end, crc = self._footer.part(self.entry, number)
        if crc32(self._bytes[start:end]) != crc:
            first, last = self.entry.position + start, self.entry.position + end
            raise Damaged(f"{self._name(number)} is damaged (bytes {first} to {last})")
        return start, end

    def verify_whole(self) -> None:
        """Reads all bytes; Damaged where their CRC is not the stream's."""
        if crc32(self._bytes) != self.entry.crc:
            raise Damaged(f"stream {self.entry.id} is not what the directory says")

    def place(self, part: int) -> tuple[int, int]:
        """Where the part is in the segment, and its length."""
        try:
            start, end, _ = self._footer.part(self.entry, part)
        except Damaged:
            return self.entry.position, self.entry.length
        return self.entry.position + start, end - start

    def _name(self, part: int) -> str:
        names = {0: "the prelude", self.entry.parts - 1: "the IPC footer"}
        return f"{names.get(part, f'chunk {part - 1}')} of stream {self.entry.id}"
