"""The tables of a segment's footer: the stream directory, the parts of streams, the manifest.

stream-entry   := id:u16 slot:u8 flags:u8 chunks:u32 fingerprint[16] position:u64 length:u64
rows:u64 earliest:i64 latest:i64 crc:u32 first_part:u32 bitmap:u32
columns:u32
part           := end:u64 crc:u32 reserved:u32
manifest-entry := first_offset:u64 items:u64 ingested_at:i64 messages:u32 first_ref:u32
refs:u32 reserved:u32
ref            := slot:u8 reserved:u8 stream:u16 chunk:u32
schema-entry   := slot:u8 reserved[3] length:u32 position:u64
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from isal.isal_zlib import crc32, crc32_combine

from penstock.model.bundle import MAX_SLOTS
from penstock.model.errors import Damaged
from penstock.segment import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STREAM = struct.Struct("<HBBI16sQQQqqIIII")
_PART = struct.Struct("<QI4x")
_MANIFEST = struct.Struct("<QQqIII4x")
_REF = struct.Struct("<BxHI")
_SCHEMA = struct.Struct("<B3xIQ")
_HAS_EVENT_TIMES: Final = 1


@dataclass(frozen=True, slots=True)
class Part:
    """A run of a stream's bytes with a CRC of its own; `end` counts from the stream's beginning."""

    end: int
    crc: int


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One stream: the chunks of one slot that have one schema, as an Arrow IPC file."""

    id: int
    slot: int
    fingerprint: bytes
    position: int
    length: int
    rows: int
    chunks: int
    crc: int
    """Of all its bytes."""
    first_part: int
    """Where its parts begin in the part table: the prelude, each chunk, the IPC footer."""
    columns: int
    """How many columns the representative schema of its slot has."""
    omitted: tuple[int, ...] = ()
    """Which of those columns it does not have."""
    event_times_ns: tuple[int, int] | None = None
    """The earliest and the latest event; None where no event has a time."""

    @property
    def parts(self) -> int:
        return self.chunks + 2


class Ref(NamedTuple):
    """Where the batch of a slot is: which chunk of which stream."""

    slot: int
    stream: int
    chunk: int


class ManifestEntry(NamedTuple):
    """One bundle: what it is, and where its slots are."""

    first_offset: int
    messages: int
    items: int
    ingested_at_ns: int
    refs: tuple[Ref, ...]


def joined_crc(parts: Iterable[Part]) -> int:
    """The CRC of consecutive parts as a whole."""
    crc = start = 0
    for part in parts:
        crc = crc32_combine(crc, part.crc, part.end - start)
        start = part.end
    return crc


# --- encoding ----------------------------------------------------------------------------------


def encode_footer(
    streams: Sequence[StreamEntry],
    parts: Sequence[Part],
    manifest: Sequence[ManifestEntry],
    schemas: Sequence[tuple[int, bytes]],
) -> bytes:
    """The tables; `schemas` holds the representative schema of each slot as an IPC message."""
    refs = [ref for entry in manifest for ref in entry.refs]
    fixed = len(streams) * _STREAM.size + len(parts) * _PART.size + len(refs) * _REF.size
    fixed += len(manifest) * _MANIFEST.size + len(schemas) * _SCHEMA.size
    bitmaps, bitmap_positions = _laid_out([_bitmap(stream) for stream in streams], fixed)
    messages, positions = _laid_out([schema for _, schema in schemas], fixed + len(bitmaps))
    return b"".join(
        [
            *map(_encode_stream, streams, bitmap_positions),
            *(_PART.pack(part.end, part.crc) for part in parts),
            *_encode_manifest(manifest),
            *(_REF.pack(ref.slot, ref.stream, ref.chunk) for ref in refs),
            *(
                _SCHEMA.pack(slot, len(message), position)
                for (slot, message), position in zip(schemas, positions, strict=True)
            ),
            bitmaps,
            messages,
        ]
    )


def _laid_out(pieces: Iterable[bytes], position: int) -> tuple[bytes, list[int]]:
    positions = []
    padded = []
    for piece in pieces:
        positions.append(position)
        padded.append(piece.ljust(fmt.aligned(len(piece), 8), b"\0"))
        position += len(padded[-1])
    return b"".join(padded), positions


def _bitmap(stream: StreamEntry) -> bytes:
    bits = sum(1 << column for column in stream.omitted)
    return bits.to_bytes(-(-stream.columns // 8), "little")


def _encode_stream(stream: StreamEntry, bitmap_position: int) -> bytes:
    earliest, latest = stream.event_times_ns or (0, 0)
    return _STREAM.pack(
        stream.id,
        stream.slot,
        _HAS_EVENT_TIMES if stream.event_times_ns else 0,
        stream.chunks,
        stream.fingerprint,
        stream.position,
        stream.length,
        stream.rows,
        earliest,
        latest,
        stream.crc,
        stream.first_part,
        bitmap_position,
        stream.columns,
    )


def _encode_manifest(manifest: Sequence[ManifestEntry]) -> Iterable[bytes]:
    first_ref = 0
    for entry in manifest:
        yield _MANIFEST.pack(
            entry.first_offset,
            entry.items,
            entry.ingested_at_ns,
            entry.messages,
            first_ref,
            len(entry.refs),
        )
        first_ref += len(entry.refs)


# --- decoding ----------------------------------------------------------------------------------


class Footer:
    """The tables of a segment, each entry decoded when it is asked for."""

    __slots__ = ("_data", "_manifest_at", "_parts_at", "_refs_at", "_schemas_at", "_trailer")

    def __init__(self, data: memoryview, trailer: fmt.Trailer) -> None:
        """`data` is the whole footer; Damaged where it is not what the trailer says."""
        if len(data) != trailer.footer_length or crc32(data) != trailer.footer_crc:
            raise Damaged("the segment's footer is damaged")
        self._data = data
        self._trailer = trailer
        self._parts_at = trailer.streams * _STREAM.size
        self._manifest_at = self._parts_at + trailer.parts * _PART.size
        self._refs_at = self._manifest_at + trailer.info.bundles * _MANIFEST.size
        self._schemas_at = self._refs_at + trailer.refs * _REF.size
        if self._schemas_at + trailer.schemas * _SCHEMA.size > len(data):
            raise Damaged("the segment's footer is shorter than its tables")

    def streams(self) -> list[StreamEntry]:
        return [self._stream(number) for number in range(self._trailer.streams)]

    def _stream(self, number: int) -> StreamEntry:
        fields = _STREAM.unpack_from(self._data, number * _STREAM.size)
        identity, slot, flags, chunks, fingerprint, position, length, rows = fields[:8]
        earliest, latest, crc, first_part, bitmap_position, columns = fields[8:]
        entry = StreamEntry(
            identity,
            slot,
            fingerprint,
            position,
            length,
            rows,
            chunks,
            crc,
            first_part,
            columns,
            self._omitted(bitmap_position, columns),
            (earliest, latest) if flags & _HAS_EVENT_TIMES else None,
        )
        if (
            identity != number
            or slot >= MAX_SLOTS
            or first_part + entry.parts > self._trailer.parts
        ):
            raise Damaged(f"stream {number} is not in its place")
        if position < fmt.HEADER_BYTES or position + length > self._trailer.footer_position:
            raise Damaged(f"stream {number} lies outside the segment's streams")
        return entry

    def _omitted(self, position: int, columns: int) -> tuple[int, ...]:
        bits = int.from_bytes(self._slice(position, -(-columns // 8)), "little")
        return tuple(column for column in range(columns) if bits >> column & 1) if bits else ()

    def part(self, stream: StreamEntry, number: int) -> tuple[int, int, int]:
        """(beginning in the stream, end in the stream, crc) of the stream's part."""
        position = self._parts_at + (stream.first_part + number) * _PART.size
        start = _PART.unpack_from(self._data, position - _PART.size)[0] if number else 0
        end, crc = _PART.unpack_from(self._data, position)
        if not start <= end <= stream.length:
            raise Damaged(f"part {number} of stream {stream.id} lies outside the stream")
        return start, end, crc

    def manifest(self, index: int) -> ManifestEntry:
        """The bundle of that index, which must be one of the segment's."""
        position = self._manifest_at + index * _MANIFEST.size
        first_offset, items, ingested_at_ns, messages, first_ref, count = _MANIFEST.unpack_from(
            self._data, position
        )
        if first_ref + count > self._trailer.refs:
            raise Damaged(f"bundle {index} lies outside the segment's manifest")
        refs = self._data[
            self._refs_at + first_ref * _REF.size : self._refs_at + (first_ref + count) * _REF.size
        ]
        return ManifestEntry(
            first_offset,
            messages,
            items,
            ingested_at_ns,
            tuple(map(Ref._make, _REF.iter_unpack(refs))),
        )

    def schemas(self) -> dict[int, memoryview]:
        """The representative schema of each slot, as an IPC message."""
        table = self._slice(self._schemas_at, self._trailer.schemas * _SCHEMA.size)
        return {
            slot: self._slice(position, length)
            for slot, length, position in _SCHEMA.iter_unpack(table)
        }

    def _slice(self, position: int, length: int) -> memoryview:
        if position + length > len(self._data):
            raise Damaged("a table of the segment's footer lies outside of it")
        return self._data[position : position + length]


def decode_segment(data: memoryview) -> tuple[fmt.Header, fmt.Trailer, Footer]:
    """All that a segment says of itself; nothing of its streams is looked at."""
    header = fmt.decode_header(data[: fmt.HEADER_BYTES])
    if len(data) < fmt.HEADER_BYTES + fmt.TRAILER_BYTES:
        raise Damaged("a segment without a whole trailer")
    trailer = fmt.decode_trailer(data[-fmt.TRAILER_BYTES :], len(data))
    if (header.store_id, header.segment_seq) != (trailer.store_id, trailer.info.segment_seq):
        raise Damaged("the segment's header and trailer are of different segments")
    end = trailer.footer_position + trailer.footer_length
    return header, trailer, Footer(data[trailer.footer_position : end], trailer)
