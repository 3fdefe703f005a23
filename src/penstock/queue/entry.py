"""An entry of the manifest, byte by byte: where a batch is and what is in it.

    entry-1  := entry_len:u32 sequence:u64 body
    entry-2  := entry_len:u32 sequence:u64 body extent
    body     := location_len:u16 location metadata_count:u32 metadata*
    metadata := start_index:u32 ingestion_time_ms:i64 payload_len:u32 payload
    extent   := batch_bytes:u64 record_count:u32 batch_crc:u32 end_bytes:u64

`entry_len` counts what follows it. Runs of entries stand behind each other without padding, with
contiguous sequences.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.model.errors import Damaged, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LENGTH = struct.Struct("<I")
_START = struct.Struct("<IQ")
_LOCATION = struct.Struct("<H")
_COUNT = struct.Struct("<I")
_METADATA = struct.Struct("<IqI")
_EXTENT = struct.Struct("<QIIQ")
_MAX_LOCATION_BYTES: Final = 2**16 - 1
MAX_ENTRY_BYTES: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Metadata:
    """What is known of a range of records: from `start_index` to the next one's, or the end."""

    start_index: int
    ingestion_time_ms: int
    """When they were produced, in milliseconds since 1970 by the producer's clock."""
    payload: bytes
    """What the caller of `produce` said of them."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What version 2 says of a batch beside its place."""

    batch_bytes: int
    """The size of the object."""
    record_count: int
    batch_crc: int
    """The CRC in the batch's footer, so that no other batch passes for it."""
    end_bytes: int = 0
    """Bytes of all batches ever enqueued, up to and with this one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch in the queue."""

    sequence: int
    location: str
    metadata: tuple[Metadata, ...]
    extent: Extent | None
    """None in version 1."""


def encode_body(location: str, metadata: Sequence[Metadata]) -> bytes:
    """What an entry says whatever its sequence is."""
    place = location.encode()
    if not 0 < len(place) <= _MAX_LOCATION_BYTES:
        raise InvalidArgument(f"a location has 1 to {_MAX_LOCATION_BYTES} bytes, not {len(place)}")
    pieces = [_LOCATION.pack(len(place)), place, _COUNT.pack(len(metadata))]
    pack = _METADATA.pack
    for item in metadata:
        head = pack(item.start_index, item.ingestion_time_ms, len(item.payload))
        pieces += (head, item.payload)
    return b"".join(pieces)


def encode_entry(sequence: int, body: bytes, extent: Extent | None) -> bytes:
    """The entry; without an extent one of version 1."""
    end = b""
    if extent is not None:
        parts = (extent.batch_bytes, extent.record_count, extent.batch_crc, extent.end_bytes)
        end = _EXTENT.pack(*parts)
    length = _START.size - _LENGTH.size + len(body) + len(end)
    if length > MAX_ENTRY_BYTES:
        raise InvalidArgument(f"an entry of {length} bytes; its length has 32 bits")
    return b"".join([_START.pack(length, sequence), body, end])


def entry_positions(data: bytes, count: int, first_sequence: int) -> list[int]:
    """Where each of `count` entries begins, and where the last one ends.

    Looks at lengths and sequences alone. Damaged: they do not fill `data` exactly.
    """
    positions, position, size = [0], 0, len(data)
    unpack, width, head = _START.unpack_from, _LENGTH.size, _START.size
    if count * head > size:
        raise Damaged(f"{count} entries do not fit into {size} bytes")
    for expected in range(first_sequence, first_sequence + count):
        if position + head > size:
            raise Damaged("the entries end before their count is reached")
        length, sequence = unpack(data, position)
        position += width + length
        if sequence != expected:
            raise Damaged(f"sequence {sequence} where {expected} should be")
        if position > size or length < head - width:
            raise Damaged(f"the entry {sequence} goes beyond the end")
        positions.append(position)
    if position != size:
        raise Damaged(f"{size - position} bytes behind the last entry")
    return positions


def decode_entry(data: bytes, start: int, end: int, version: int) -> Entry:
    """The entry that fills `data` from `start` to `end`; Damaged where it does not."""
    try:
        _, sequence = _START.unpack_from(data, start)
        body_end = end if version == 1 else end - _EXTENT.size
        location, metadata = _decode_body(data, start + _START.size, body_end)
        extent = None if version == 1 else Extent(*_EXTENT.unpack_from(data, body_end))
        return Entry(sequence, location, metadata, extent)
    except (struct.error, UnicodeDecodeError) as error:
        raise Damaged(f"not an entry of a queue: {error}") from None


def decode_entries(
    data: bytes, count: int, first_sequence: int, version: int, *, begin: int = 0
) -> Iterator[Entry]:
    """The entries of a run from sequence `begin` on."""
    positions = entry_positions(data, count, first_sequence)
    for at in range(min(max(begin - first_sequence, 0), count), count):
        yield decode_entry(data, positions[at], positions[at + 1], version)


def _decode_body(data: bytes, position: int, end: int) -> tuple[str, tuple[Metadata, ...]]:
    (length,) = _LOCATION.unpack_from(data, position)
    start = position + _LOCATION.size
    position = start + length
    if not length or position + _COUNT.size > end:
        raise Damaged("an entry's location goes beyond its end")
    location = data[start:position].decode()
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    if count * _METADATA.size > end - position:
        raise Damaged(f"{count} items of metadata do not fit into their entry")
    items = list[Metadata]()
    for _ in range(count):
        item, position = _decode_metadata(data, position, end)
        items.append(item)
    if position != end:
        raise Damaged("an entry's fields do not fill it")
    return location, tuple(items)


def _decode_metadata(data: bytes, position: int, end: int) -> tuple[Metadata, int]:
    payload = position + _METADATA.size
    if payload > end:
        raise Damaged("an entry's metadata go beyond its end")
    start_index, time_ms, length = _METADATA.unpack_from(data, position)
    if payload + length > end:
        raise Damaged("an entry's metadata go beyond its end")
    return Metadata(start_index, time_ms, data[payload : payload + length]), payload + length
