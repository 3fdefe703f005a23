"""The archive's object, descriptor and checkpoint. See docs/formats/archive.md; no I/O here.

    object := header block*
    header (64 bytes) := magic[8] version:u16 flags:u16 epoch:u32 log_id[16] start_offset:u64
                         end_offset:u64 reserved[12] crc:u32
    block  := first_offset:u64 messages:u32 raw_bytes:u32 stored_bytes:u32 crc:u32
              stored[stored_bytes]
    stored := frame*, or the zstd frame of that where flag 1 is set
    frame  := as in the log: offset:u64 length:u32 crc:u32 message[length]

All integers are little-endian. Every CRC but the header's own continues from the header's. Equal
messages of one log, epoch and range make equal bytes, so that writing an object twice is harmless.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from isal.isal_zlib import crc32

from penstock.log.format import decode_frames
from penstock.model.errors import Damaged, UnsupportedVersion
from penstock.storage.documents import decode_document, encode_document

MAGIC: Final = b"PNSTKARC"
VERSION: Final = 1
HEADER_BYTES: Final = 64
BLOCK_BYTES: Final = 24
"""What a block adds to its frames."""
ZSTD: Final = 1
"""The flag of compressed blocks."""
INDEX_MESSAGES: Final = 1000
"""A block holds at most so many messages, and each block has an entry in the index."""
INDEX_BYTES: Final = 512 * 1024
"""A block is closed when its frames are this long."""
MAX_RAW_BYTES: Final = 2**31
CHECKPOINT: Final = "archive checkpoint"

_HEADER = struct.Struct("<8sHHI16sQQ12s")
_CRC = struct.Struct("<I")
_BLOCK = struct.Struct("<QIII")
_NAME = re.compile(r"e([0-9]{10})/data-([0-9]{20})-([0-9]{20})\.frames")


@dataclass(frozen=True, slots=True)
class Header:
    """What an object says of itself: messages [start_offset, end_offset) of a log."""

    log_id: uuid.UUID
    epoch: int
    start_offset: int
    end_offset: int
    flags: int = 0

    @property
    def seed(self) -> int:
        """The header's CRC: where every other CRC of the object begins."""
        return int(crc32(self._packed()))

    def _packed(self) -> bytes:
        return _HEADER.pack(
            MAGIC,
            VERSION,
            self.flags,
            self.epoch,
            self.log_id.bytes,
            self.start_offset,
            self.end_offset,
            bytes(12),
        )

    def encode(self) -> bytes:
        """The first HEADER_BYTES of the object."""
        return self._packed() + _CRC.pack(self.seed)


def decode_header(data: bytes) -> Header:
    """Damaged or UnsupportedVersion where it cannot be relied on."""
    if len(data) < HEADER_BYTES or data[:8] != MAGIC:
        raise Damaged("not an object of an archive")
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if crc32(data[: _HEADER.size]) != crc:
        raise Damaged("the header's checksum does not match")
    _, version, flags, epoch, log_id, start, end, _ = _HEADER.unpack_from(data)
    if version != VERSION or flags & ~ZSTD:
        raise UnsupportedVersion(f"archive version {version}, this Penstock reads {VERSION}")
    return Header(uuid.UUID(bytes=log_id), epoch, start, end, flags)


@dataclass(frozen=True, slots=True)
class BlockHead:
    """What stands before a block's frames."""

    first_offset: int
    messages: int
    raw_bytes: int
    stored_bytes: int
    crc: int

    @property
    def end_offset(self) -> int:
        """One past the last message."""
        return self.first_offset + self.messages


def encode_block(
    first_offset: int, messages: int, raw_bytes: int, stored: bytes, seed: int
) -> bytes:
    """The block of these stored bytes."""
    head = _BLOCK.pack(first_offset, messages, raw_bytes, len(stored))
    return head + _CRC.pack(crc32(stored, crc32(head, seed))) + stored


def decode_block_head(data: bytes | bytearray, position: int = 0) -> BlockHead:
    """Unverified: its CRC covers the stored bytes too. Damaged where it is too short or absurd."""
    if len(data) < position + BLOCK_BYTES:
        raise Damaged("a block's head is cut off")
    first, messages, raw, stored = _BLOCK.unpack_from(data, position)
    (crc,) = _CRC.unpack_from(data, position + _BLOCK.size)
    if not messages or max(raw, stored) > MAX_RAW_BYTES:
        raise Damaged("a block of an absurd size")
    return BlockHead(first, messages, raw, stored, crc)


def check_block(head: BlockHead, stored: bytes, seed: int) -> None:
    """Damaged where the stored bytes are not those of the head."""
    packed = _BLOCK.pack(head.first_offset, head.messages, head.raw_bytes, head.stored_bytes)
    if len(stored) != head.stored_bytes or crc32(stored, crc32(packed, seed)) != head.crc:
        raise Damaged(f"the block of offset {head.first_offset}: the checksum does not match")


def decode_block(head: BlockHead, raw: bytes, seed: int) -> list[bytes]:
    """The messages in the frames of a block, each CRC verified."""
    if len(raw) != head.raw_bytes:
        raise Damaged(f"the block of offset {head.first_offset} has not the length it says")
    messages, end = decode_frames(raw, 0, head.first_offset, head.end_offset, seed)
    if len(messages) != head.messages or end != len(raw):
        raise Damaged(f"the block of offset {head.first_offset}: a frame is damaged")
    return messages


# --- names -------------------------------------------------------------------------------------


def object_id(epoch: int, start_offset: int, end_offset: int) -> str:
    """`e0000000001/data-<start>-<end>.frames`; a fenced owner never writes over its successor's."""
    return f"e{epoch:010d}/data-{start_offset:020d}-{end_offset:020d}.frames"


def parse_object_id(text: str) -> tuple[int, int, int] | None:
    """(epoch, start_offset, end_offset); None for other names."""
    match = _NAME.fullmatch(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


# --- the descriptor ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What the metadata says of an object. An object without one is not in the archive."""

    object_id: str
    start_offset: int
    end_offset: int
    """One past the last message."""
    size: int
    etag: str | None
    checksum: str
    """`crc32:` and eight hex digits, of the whole object."""
    created_at: str
    """ISO 8601, UTC."""
    completed: bool
    offset_index: tuple[tuple[int, int], ...] = field(repr=False)
    """(first offset, byte position) of each block."""
    epoch: int
    log_id: str
    messages: int
    compression: str | None = None
    lost: tuple[tuple[int, int], ...] = ()
    """Offset ranges [first, end) that the log could not give."""


def encode_descriptor(descriptor: Descriptor) -> bytes:
    """The JSON of the key `…/objects/<start_offset>`."""
    return json.dumps({"version": VERSION, **asdict(descriptor)}, separators=(",", ":")).encode()


def decode_descriptor(data: bytes) -> Descriptor:
    """Damaged or UnsupportedVersion where it cannot be relied on."""
    try:
        fields: dict[str, Any] = json.loads(data)
        version = fields.pop("version")
        known = {name: fields[name] for name in Descriptor.__slots__ if name in fields}
        known["offset_index"] = tuple((int(a), int(b)) for a, b in known["offset_index"])
        known["lost"] = tuple((int(a), int(b)) for a, b in known.get("lost", ()))
        descriptor = Descriptor(**known)
        whole = 0 <= int(descriptor.start_offset) < int(descriptor.end_offset)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged("not a descriptor of an archive") from None
    if version != VERSION:
        raise UnsupportedVersion(f"descriptor version {version}, this Penstock reads {VERSION}")
    if not whole:
        raise Damaged("a descriptor of no offsets")
    return descriptor


# --- the checkpoint ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A byte position in a log file, and the offset there; `seed` says which file it was."""

    file: str
    position: int
    offset: int
    seed: int


def encode_checkpoint(place: Place, last_object_id: str, written_at: str) -> bytes:
    """The text of `archive.ckpt`."""
    fields = {"last_object_id": last_object_id, "written_at": written_at}
    return encode_document(CHECKPOINT, VERSION, {**asdict(place), **fields})


def decode_checkpoint(data: bytes) -> Place:
    """Damaged or UnsupportedVersion where it cannot be relied on."""
    fields = decode_document(CHECKPOINT, VERSION, data)
    try:
        return Place(
            str(fields["file"]),
            int(fields["position"]),
            int(fields["offset"]),
            int(fields["seed"]),
        )
    except (KeyError, TypeError, ValueError):
        raise Damaged("not an archive checkpoint") from None
