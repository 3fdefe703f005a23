"""The archive's object, descriptor and checkpoint. See docs/formats/archive.md; no I/O here.

    object := header block*
    header (80 bytes) := magic[8] version:u16 flags:u16 epoch:u32 log_id[16] start_offset:u64
                         end_offset:u64 reserved[12] source[16] crc:u32
    block  := first_offset:u64 messages:u32 raw_bytes:u32 stored_bytes:u32 crc:u32
              stored[stored_bytes]
    stored := frame*, or the zstd frame of that where flag 1 is set
    frame  := as in the log: offset:u64 length:u32 crc:u32 message[length]

A header of version 1 has no source, and 64 bytes. All integers are little-endian. Every CRC but the
header's own continues from the header's. Equal messages of one log, epoch and range make equal
bytes, so that writing an object twice is harmless.
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
VERSION: Final = 2
"""Of objects and descriptors; those of version 1 do not say which data directory they are from."""
LEAST_HEADER_BYTES: Final = 64
MOST_HEADER_BYTES: Final = 80
"""No header is shorter than the one, nor longer than the other."""
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
CHECKPOINT_VERSION: Final = 1

_HEADER = struct.Struct("<8sHHI16sQQ12s")
_CRC = struct.Struct("<I")
_BLOCK = struct.Struct("<QIII")
_HEADER_BYTES: Final = {1: _HEADER.size + _CRC.size, 2: _HEADER.size + 16 + _CRC.size}
_NAME = re.compile(r"e([0-9]{10})/data-([0-9]{20})-([0-9]{20})\.frames")


@dataclass(frozen=True, slots=True)
class Header:
    """What an object says of itself: messages [start_offset, end_offset) of a log."""

    log_id: uuid.UUID
    epoch: int
    start_offset: int
    end_offset: int
    flags: int = 0
    source: uuid.UUID | None = None
    """The data directory whose log it is; None in version 1, which does not say."""

    @property
    def version(self) -> int:
        """Of the object, and of its descriptor."""
        return 1 if self.source is None else VERSION

    @property
    def size(self) -> int:
        """Where the first block stands."""
        return _HEADER_BYTES[self.version]

    @property
    def seed(self) -> int:
        """The header's CRC: where every other CRC of the object begins."""
        return int(crc32(self._packed()))

    def _packed(self) -> bytes:
        packed = _HEADER.pack(
            MAGIC,
            self.version,
            self.flags,
            self.epoch,
            self.log_id.bytes,
            self.start_offset,
            self.end_offset,
            bytes(12),
        )
        return packed if self.source is None else packed + self.source.bytes

    def encode(self) -> bytes:
        """The first `size` bytes of the object."""
        return self._packed() + _CRC.pack(self.seed)


def header_bytes(data: bytes | bytearray) -> int:
    """How long the header is that begins with these LEAST_HEADER_BYTES.

    Damaged or UnsupportedVersion where it is none that can be read.
    """
    if len(data) < LEAST_HEADER_BYTES or data[:8] != MAGIC:
        raise Damaged("not an object of an archive")
    version: int = _HEADER.unpack_from(data)[1]
    if version not in _HEADER_BYTES:
        raise UnsupportedVersion(f"archive version {version}, this Penstock reads to {VERSION}")
    return _HEADER_BYTES[version]


def decode_header(data: bytes | bytearray) -> Header:
    """Damaged or UnsupportedVersion where it cannot be relied on."""
    size = header_bytes(data)
    body = bytes(data[: size - _CRC.size])
    if len(data) < size or _CRC.pack(crc32(body)) != data[size - _CRC.size : size]:
        raise Damaged("the header's checksum does not match")
    _, version, flags, epoch, log_id, start, end, _ = _HEADER.unpack_from(body)
    if flags & ~ZSTD:
        raise UnsupportedVersion(f"archive flags {flags:#x}, this Penstock knows {ZSTD:#x}")
    source = None if version == 1 else uuid.UUID(bytes=body[_HEADER.size :])
    return Header(uuid.UUID(bytes=log_id), epoch, start, end, flags, source)


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
    source: str | None = None
    """The identity of the data directory that wrote it; None where version 1 did, unsaid."""

    @property
    def header(self) -> Header:
        """What the object must begin with: the seed of every checksum in it."""
        flags = ZSTD if self.compression == "zstd" else 0
        source = None if self.source is None else uuid.UUID(self.source)
        log_id = uuid.UUID(self.log_id)
        return Header(log_id, self.epoch, self.start_offset, self.end_offset, flags, source)


def encode_descriptor(descriptor: Descriptor) -> bytes:
    """The JSON of the key `…/objects/<start_offset>`."""
    fields = asdict(descriptor)
    if descriptor.source is None:
        del fields["source"]
    version = descriptor.header.version
    return json.dumps({"version": version, **fields}, separators=(",", ":")).encode()


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
        expected = descriptor.header.version
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged("not a descriptor of an archive") from None
    if version not in _HEADER_BYTES:
        raise UnsupportedVersion(f"descriptor version {version}, this Penstock reads to {VERSION}")
    if version != expected:
        raise Damaged("a descriptor whose version and source do not go together")
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
    return encode_document(CHECKPOINT, CHECKPOINT_VERSION, {**asdict(place), **fields})


def decode_checkpoint(data: bytes) -> Place:
    """Damaged or UnsupportedVersion where it cannot be relied on."""
    fields = decode_document(CHECKPOINT, CHECKPOINT_VERSION, data)
    try:
        return Place(
            str(fields["file"]),
            int(fields["position"]),
            int(fields["offset"]),
            int(fields["seed"]),
        )
    except (KeyError, TypeError, ValueError):
        raise Damaged("not an archive checkpoint") from None
