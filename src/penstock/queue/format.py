"""The manifest, byte by byte. See docs/formats/queue.md; nothing here touches an object store.

    manifest-1 := entry-1* footer-1
    footer-1   := entry_count:u32 next_sequence:u64 epoch:u64 version:u16                  22 bytes
    manifest-2 := entry-2* writer* footer-2
    writer     := writer_id[16] append_no:u64
    footer-2   := magic[8] queue_id[16] first_sequence:u64 first_chunk:u64 next_chunk:u64
                  enqueued_bytes:u64 dequeued_bytes:u64 floor[16] writer_count:u16 crc:u32
                  footer-1                                                                108 bytes
    chunk      := head entry-2* crc:u32
    head       := magic[8] version:u16 reserved:u16 entry_count:u32 queue_id[16] chunk:u64
                  first_sequence:u64 lowest_id[16] crc:u32                                68 bytes

All integers are little-endian. The last 22 bytes of both versions of the manifest have one shape.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from isal.isal_zlib import crc32

from penstock.model.errors import Damaged, UnsupportedVersion
from penstock.queue.entry import entry_positions
from penstock.queue.ulid import LOWEST, Ulid

MAGIC: Final = b"PNSTKQUE"
CHUNK_MAGIC: Final = b"PNSTKQCH"
VERSIONS: Final = (1, 2)
MAX_WRITERS: Final = 64
"""So many writers are remembered; the one that was silent longest is forgotten first."""
CHUNK_HEAD_BYTES: Final = 68

_FOOTER = struct.Struct("<IQQH")
_FIELDS = struct.Struct("<8s16sQQQQQ16sH")
_WRITER = struct.Struct("<16sQ")
_CRC = struct.Struct("<I")
_CHUNK = struct.Struct("<8sHHI16sQQ16s")
_FOOTER_2_BYTES: Final = _FIELDS.size + _CRC.size + _FOOTER.size
_NO_QUEUE: Final = bytes(16)


@dataclass(frozen=True, slots=True)
class Writer:
    """The last append of one producer, so that it can recognise it after a lost response."""

    writer_id: bytes
    append_no: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the manifest says. Version 1 leaves at their defaults what it does not know."""

    version: int
    epoch: int
    """The consumer whose epoch this is may use the queue; any other is fenced."""
    next_sequence: int
    """What the next entry gets."""
    first_sequence: int
    """The oldest that was not dequeued; equals `next_sequence` in an empty queue."""
    tail_count: int = 0
    tail: bytes = b""
    """The newest entries, encoded. Older ones are in chunks; in version 1 there are none."""
    queue_id: bytes = _NO_QUEUE
    first_chunk: int = 0
    """The oldest chunk that is needed."""
    next_chunk: int = 0
    """The number of the chunk that the tail becomes."""
    enqueued_bytes: int = 0
    dequeued_bytes: int = 0
    floor: Ulid = LOWEST
    """Batches named below it are never enqueued any more, so what is left of them may go."""
    writers: tuple[Writer, ...] = ()
    """The one that appended last stands last."""

    @property
    def tail_first(self) -> int:
        """The sequence of the tail's first entry."""
        return self.next_sequence - self.tail_count

    @property
    def waiting(self) -> int:
        """Entries that were not dequeued."""
        return self.next_sequence - self.first_sequence


@dataclass(frozen=True, slots=True)
class ChunkHead:
    """What a chunk says of itself, at its beginning."""

    queue_id: bytes
    chunk: int
    first_sequence: int
    entry_count: int
    lowest_id: Ulid
    """The lowest name of its batches, for the garbage collector."""
    crc: int

    @property
    def end_sequence(self) -> int:
        """One past its last entry."""
        return self.first_sequence + self.entry_count


@dataclass(frozen=True, slots=True)
class Chunk:
    """A full tail that was put aside; never changed."""

    head: ChunkHead
    entries: bytes


# --- the manifest ------------------------------------------------------------------------------


def encode_manifest(manifest: Manifest) -> bytes:
    """The object."""
    end = _FOOTER.pack(
        manifest.tail_count, manifest.next_sequence, manifest.epoch, _known(manifest.version)
    )
    if manifest.version == 1:
        return manifest.tail + end
    fields = _FIELDS.pack(
        MAGIC,
        manifest.queue_id,
        manifest.first_sequence,
        manifest.first_chunk,
        manifest.next_chunk,
        manifest.enqueued_bytes,
        manifest.dequeued_bytes,
        manifest.floor,
        len(manifest.writers),
    )
    writers = [_WRITER.pack(writer.writer_id, writer.append_no) for writer in manifest.writers]
    checked = b"".join([manifest.tail, *writers, fields])
    return b"".join([checked, _CRC.pack(crc32(end, crc32(checked))), end])


def decode_manifest(data: bytes) -> Manifest:
    """What an object says. Damaged: it is cut off, or anything but what was written."""
    if len(data) < _FOOTER.size:
        raise Damaged(f"a manifest of {len(data)} bytes has no footer")
    count, next_sequence, epoch, version = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
    if _known(version) == 2:
        return _decode_version_2(data, count, next_sequence, epoch)
    tail = data[: -_FOOTER.size]
    if count > next_sequence:
        raise Damaged(f"{count} entries below the sequence {next_sequence}")
    first = next_sequence - count
    entry_positions(tail, count, first)
    return Manifest(
        version=1,
        epoch=epoch,
        next_sequence=next_sequence,
        first_sequence=first,
        tail_count=count,
        tail=tail,
    )


def _decode_version_2(data: bytes, count: int, next_sequence: int, epoch: int) -> Manifest:
    fields_at = len(data) - _FOOTER_2_BYTES
    if fields_at < 0:
        raise Damaged(f"a manifest of {len(data)} bytes has no footer of version 2")
    crc_at = fields_at + _FIELDS.size
    (crc,) = _CRC.unpack_from(data, crc_at)
    view = memoryview(data)
    if crc32(view[crc_at + _CRC.size :], crc32(view[:crc_at])) != crc:
        raise Damaged("the checksum of the manifest does not match")
    magic, queue_id, first, first_chunk, next_chunk, enqueued, dequeued, floor, writer_count = (
        _FIELDS.unpack_from(data, fields_at)
    )
    tail_end = fields_at - writer_count * _WRITER.size
    sound = count <= next_sequence and first <= next_sequence and first_chunk <= next_chunk
    if magic != MAGIC or tail_end < 0 or not sound:
        raise Damaged("the fields of the manifest contradict each other")
    tail = data[:tail_end]
    entry_positions(tail, count, next_sequence - count)
    writers = _WRITER.iter_unpack(view[tail_end:fields_at])
    return Manifest(
        version=2,
        epoch=epoch,
        next_sequence=next_sequence,
        first_sequence=first,
        tail_count=count,
        tail=tail,
        queue_id=queue_id,
        first_chunk=first_chunk,
        next_chunk=next_chunk,
        enqueued_bytes=enqueued,
        dequeued_bytes=dequeued,
        floor=floor,
        writers=tuple(Writer(writer_id, append_no) for writer_id, append_no in writers),
    )


def _known(version: int) -> int:
    if version not in VERSIONS:
        raise UnsupportedVersion(f"manifest version {version}, this Penstock reads 1 and 2")
    return version


# --- chunks ------------------------------------------------------------------------------------


def encode_chunk(manifest: Manifest, lowest_id: Ulid) -> bytes:
    """The tail of a manifest as its next chunk."""
    fields = (manifest.tail_count, manifest.queue_id, manifest.next_chunk, manifest.tail_first)
    head = _CHUNK.pack(CHUNK_MAGIC, 2, 0, *fields, lowest_id)
    crc = crc32(head)
    tail = manifest.tail
    return b"".join([head, _CRC.pack(crc), tail, _CRC.pack(crc32(tail, crc))])


def decode_chunk_head(data: bytes) -> ChunkHead:
    """What stands at a chunk's beginning; Damaged where its checksum is wrong."""
    if len(data) < CHUNK_HEAD_BYTES:
        raise Damaged(f"a chunk of {len(data)} bytes has no head")
    (crc,) = _CRC.unpack_from(data, _CHUNK.size)
    magic, version, _, count, queue_id, chunk, first, lowest_id = _CHUNK.unpack_from(data)
    if magic != CHUNK_MAGIC or crc32(data[: _CHUNK.size]) != crc:
        raise Damaged("the checksum of the chunk's head does not match")
    if version != 2:
        raise UnsupportedVersion(f"chunk version {version}, this Penstock reads 2")
    return ChunkHead(queue_id, chunk, first, count, lowest_id, crc)


def decode_chunk(data: bytes) -> Chunk:
    """A whole chunk; Damaged where it is anything but what was written."""
    head = decode_chunk_head(data)
    end = len(data) - _CRC.size
    if end < CHUNK_HEAD_BYTES:
        raise Damaged(f"a chunk of {len(data)} bytes has no end")
    entries = data[CHUNK_HEAD_BYTES:end]
    (crc,) = _CRC.unpack_from(data, end)
    if crc32(entries, head.crc) != crc:
        raise Damaged("the checksum of the chunk's entries does not match")
    entry_positions(entries, head.entry_count, head.first_sequence)
    return Chunk(head, entries)
