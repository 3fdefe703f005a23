"""The segment file, byte by byte. See docs/formats/segment.md; nothing here touches a file.

    segment := header streams footer trailer
    header  := magic[8] version:u16 flags:u16 reserved:u32 store_id[16] segment_seq:u64
               sealed_at:u64 reserved[12] crc:u32
    streams := (zeros stream)* zeros          each begins at a multiple of 64 bytes
    stream  := an Arrow IPC file: prelude chunk* ipc-footer
    footer  := stream-entry* part* manifest-entry* ref* schema-entry* bitmap* schema*
    trailer := footer's position, length, crc; counts; what the segment holds; crc:u32 magic[8]

All integers are little-endian. Every table has entries of one width, so that the entry of a bundle
is found without reading those before it; `tables` encodes and decodes them.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import Final

from isal.isal_zlib import crc32

from penstock.model.errors import Damaged, UnsupportedVersion

MAGIC: Final = b"PNSTKSEG"
END_MAGIC: Final = b"PNSTKEND"
PLAIN: Final = 1
"""The version of a segment each of whose slots has a representative schema."""
MIXED: Final = 2
"""Of one where a slot has none, since its streams have columns without a widest type."""
HEADER_BYTES: Final = 64
TRAILER_BYTES: Final = 128
ALIGNMENT: Final = 64
"""Where a stream or the footer may begin: at multiples of this."""

_HEADER = struct.Struct("<8sHHI16sQQ12x")
_TRAILER = struct.Struct("<QQIIIIIIQ16sQQQqqQHH")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Header:
    """Whose the file is."""

    store_id: uuid.UUID
    segment_seq: int
    sealed_at_ns: int
    version: int = PLAIN


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """The one description of a sealed segment, which is immutable but for its deletion.

    The trailer, ack.log and every listing say the same, in this order. Offsets decide what a
    segment is and what comes before it; the number is the name of its file.
    """

    segment_seq: int
    first_offset: int
    end_offset: int
    """One past the last message."""
    bundles: int
    items: int
    size: int
    """Bytes of the file."""
    first_ingested_at_ns: int
    """The earliest of its bundles."""
    last_ingested_at_ns: int
    """The latest of its bundles."""
    sealed_at_ns: int


@dataclass(frozen=True, slots=True)
class Trailer:
    """Whose the segment is, what it holds, and where its footer stands."""

    footer_position: int
    footer_length: int
    footer_crc: int
    streams: int
    parts: int
    refs: int
    schemas: int
    store_id: uuid.UUID
    info: SegmentInfo
    version: int = PLAIN


def aligned(position: int, unit: int = ALIGNMENT) -> int:
    """The next multiple of `unit`."""
    return -(-position // unit) * unit


# --- header ------------------------------------------------------------------------------------


def encode_header(header: Header) -> bytes:
    """The first HEADER_BYTES of a segment."""
    store_id = header.store_id.bytes
    packed = _HEADER.pack(
        MAGIC, header.version, 0, 0, store_id, header.segment_seq, header.sealed_at_ns
    )
    return packed + _CRC.pack(crc32(packed))


def decode_header(data: bytes | memoryview) -> Header:
    """The header in a segment's first HEADER_BYTES."""
    if len(data) < HEADER_BYTES:
        raise Damaged("a segment without a whole header")
    magic, version, _, _, store_id, segment_seq, sealed_at_ns = _HEADER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if magic != MAGIC or crc32(data[: _HEADER.size]) != crc:
        raise Damaged("the segment's header is damaged")
    _check_version(version)
    return Header(uuid.UUID(bytes=store_id), segment_seq, sealed_at_ns, version)


def _check_version(version: int) -> None:
    if version not in (PLAIN, MIXED):
        text = f"segment version {version}, this Penstock reads {PLAIN} and {MIXED}"
        raise UnsupportedVersion(text)


# --- trailer -----------------------------------------------------------------------------------


def encode_trailer(trailer: Trailer) -> bytes:
    """The last TRAILER_BYTES of a segment."""
    info = trailer.info
    packed = _TRAILER.pack(
        trailer.footer_position,
        trailer.footer_length,
        trailer.footer_crc,
        trailer.streams,
        trailer.parts,
        info.bundles,
        trailer.refs,
        trailer.schemas,
        info.segment_seq,
        trailer.store_id.bytes,
        info.first_offset,
        info.end_offset,
        info.items,
        info.first_ingested_at_ns,
        info.last_ingested_at_ns,
        info.sealed_at_ns,
        trailer.version,
        0,
    )
    return packed + _CRC.pack(crc32(packed)) + END_MAGIC


def decode_trailer(data: bytes | memoryview, size: int) -> Trailer:
    """The trailer in the last TRAILER_BYTES of a segment of `size` bytes."""
    if len(data) != TRAILER_BYTES or data[-len(END_MAGIC) :] != END_MAGIC:
        raise Damaged("a segment without a trailer")
    (crc,) = _CRC.unpack_from(data, _TRAILER.size)
    if crc32(data[: _TRAILER.size]) != crc:
        raise Damaged("the segment's trailer is damaged")
    position, length, footer_crc, streams, parts, bundles, refs, schemas, *rest = (
        _TRAILER.unpack_from(data)
    )
    segment_seq, store_id, first, end, items, earliest, latest, sealed_at_ns, version, _ = rest
    _check_version(version)
    if position + length + TRAILER_BYTES != size:
        raise Damaged("the segment's size is not what its trailer says")
    times = (earliest, latest, sealed_at_ns)
    info = SegmentInfo(segment_seq, first, end, bundles, items, size, *times)
    counts = (streams, parts, refs, schemas)
    owner = uuid.UUID(bytes=store_id)
    return Trailer(position, length, footer_crc, *counts, owner, info, version)
