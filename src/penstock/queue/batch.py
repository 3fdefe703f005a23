"""The data batch, byte by byte. See docs/formats/queue.md; nothing here touches an object store.

    batch-1  := block footer-1
    footer-1 := compression:u8 record_count:u32 version:u16                                 7 bytes
    batch-2  := block footer-2
    footer-2 := batch_id[16] record_bytes:u64 block_crc:u32 footer_crc:u32 footer-1        39 bytes
    block    := record*, compressed as a whole
    record   := length:u32 data[length]

All integers are little-endian. The last seven bytes of both versions have the same shape.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zstandard
from isal.isal_zlib import crc32

from penstock.model.errors import Damaged, InvalidArgument, UnsupportedVersion
from penstock.queue.settings import CompressionType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.queue.ulid import Ulid

VERSIONS: Final = (1, 2)
ZSTD_LEVEL: Final = 3
MAX_RECORD_BYTES: Final = 2**32 - 1

_LENGTH = struct.Struct("<I")
_FOOTER = struct.Struct("<BIH")
_CHECKED = struct.Struct("<16sQI")
_CRC = struct.Struct("<I")
_JOINED_BELOW_BYTES: Final = 16 * 1024
"""Records that are smaller on average are joined: a store pays for each piece."""
_STREAM_STEP_BYTES: Final = 1024
"""Packed bytes unpacked at a time: 32 MiB at the very most."""
_FOOTER_2_BYTES: Final = _CHECKED.size + _CRC.size + _FOOTER.size


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch as it is stored, and what the manifest says of it."""

    pieces: list[bytes]
    """Not joined: a store takes them as they are, and copying large records costs more."""
    size: int
    record_count: int
    crc: int
    """The footer's CRC, which stands for the whole batch; 0 in version 1."""

    @property
    def data(self) -> bytes:
        """The object."""
        return b"".join(self.pieces)


def encode_batch(
    records: Sequence[bytes],
    batch_id: Ulid,
    *,
    version: int = 2,
    compression: CompressionType = CompressionType.NONE,
) -> EncodedBatch:
    """The batch with these records in this order."""
    block, record_bytes = _encode_block(records, compression)
    tail = _FOOTER.pack(compression, len(records), _known(version))
    crc = 0
    if version != 1:
        checked = _CHECKED.pack(batch_id, record_bytes, _crc_of(block))
        crc = crc32(tail, crc32(checked))
        tail = b"".join([checked, _CRC.pack(crc), tail])
    block.append(tail)
    return EncodedBatch(block, sum(map(len, block)), len(records), crc)


def decode_batch(
    data: bytes,
    *,
    max_record_bytes: int,
    batch_id: Ulid | None = None,
    crc: int | None = None,
) -> list[bytes]:
    """The records. Damaged: it is not what was written, or unpacks to more than the bound.

    `batch_id` and `crc` are what the manifest says; a batch of version 1 carries neither.
    """
    version, compression, count = _read_tail(data)
    expected: int | None = None
    end = len(data) - _FOOTER.size
    if version == 2:
        end, expected = _verify(data, batch_id, crc)
    block = memoryview(data)[:end]
    records = _unpacked(block, compression, max_record_bytes, expected)
    return _split(records, count)


def batch_version(data: bytes) -> int:
    """The version that a batch says it has."""
    return _read_tail(data)[0]


def _encode_block(
    records: Sequence[bytes], compression: CompressionType
) -> tuple[list[bytes], int]:
    """The block in pieces, and how many bytes it has unpacked."""
    pack, pieces = _LENGTH.pack, list[bytes]()
    for record in records:
        if len(record) > MAX_RECORD_BYTES:
            raise InvalidArgument(f"a record of {len(record)} bytes; its length has 32 bits")
        pieces += (pack(len(record)), record)
    size = sum(map(len, pieces))
    if compression is CompressionType.ZSTD:
        return [zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(b"".join(pieces))], size
    if size < len(records) * _JOINED_BELOW_BYTES:
        pieces = [b"".join(pieces)]
    return pieces, size


def _crc_of(pieces: Sequence[bytes]) -> int:
    crc = 0
    for piece in pieces:
        crc = crc32(piece, crc)
    return crc


def _read_tail(data: bytes) -> tuple[int, int, int]:
    if len(data) < _FOOTER.size:
        raise Damaged(f"a batch of {len(data)} bytes has no footer")
    compression, count, version = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
    return _known(version), compression, count


def _known(version: int) -> int:
    if version not in VERSIONS:
        raise UnsupportedVersion(f"batch version {version}, this Penstock reads 1 and 2")
    return version


def _verify(data: bytes, batch_id: Ulid | None, crc: int | None) -> tuple[int, int]:
    """Where the block of a batch of version 2 ends, and how many bytes it unpacks to."""
    end = len(data) - _FOOTER_2_BYTES
    if end < 0:
        raise Damaged(f"a batch of {len(data)} bytes has no footer of version 2")
    named, record_bytes, block_crc = _CHECKED.unpack_from(data, end)
    (found,) = _CRC.unpack_from(data, end + _CHECKED.size)
    checked = data[end : end + _CHECKED.size]
    if crc32(data[-_FOOTER.size :], crc32(checked)) != found:
        raise Damaged("the checksum of the batch's footer does not match")
    if crc32(memoryview(data)[:end]) != block_crc:
        raise Damaged("the checksum of the batch's records does not match")
    if batch_id not in {None, named} or crc not in {None, found}:
        raise Damaged("the object holds another batch than the manifest says")
    return end, record_bytes


def _unpacked(
    block: memoryview, compression: int, max_record_bytes: int, expected: int | None
) -> memoryview:
    if expected is not None and expected > max_record_bytes:
        raise Damaged(f"a batch of {expected} bytes; the limit is {max_record_bytes}")
    if compression == CompressionType.ZSTD:
        block = _decompressed(block, max_record_bytes if expected is None else expected)
    elif compression != CompressionType.NONE:
        raise UnsupportedVersion(f"batch with compression {compression}; 0 and 1 are known")
    if expected is not None and len(block) != expected:
        raise Damaged(f"{len(block)} bytes of records where the footer says {expected}")
    if len(block) > max_record_bytes:
        raise Damaged(f"a batch of {len(block)} bytes; the limit is {max_record_bytes}")
    return block


def _decompressed(block: memoryview, limit: int) -> memoryview:
    """One frame of Zstandard and nothing behind it, never more of it than the limit."""
    try:
        size = zstandard.frame_content_size(block)
        if size < 0:
            return _decompressed_bit_by_bit(block, limit)
        if size > limit:
            raise Damaged(f"the batch's records unpack to more than {limit} bytes")
        unpack = zstandard.ZstdDecompressor().decompress
        return memoryview(unpack(block, allow_extra_data=False))
    except (zstandard.ZstdError, MemoryError) as error:
        raise Damaged(f"the batch's records do not unpack: {error}") from None


def _decompressed_bit_by_bit(block: memoryview, limit: int) -> memoryview:
    """The same where the frame does not say its size, as those of a streaming compressor."""
    stream, unpacked = zstandard.ZstdDecompressor().decompressobj(), bytearray()
    for position in range(0, len(block), _STREAM_STEP_BYTES):
        if stream.eof:
            raise Damaged("bytes behind the batch's packed records")
        unpacked += stream.decompress(block[position : position + _STREAM_STEP_BYTES])
        if len(unpacked) > limit:
            raise Damaged(f"the batch's records unpack to more than {limit} bytes")
    if not stream.eof or stream.unused_data:
        raise Damaged("the batch's packed records have no end, or something behind it")
    return memoryview(unpacked)


def _split(block: memoryview, count: int) -> list[bytes]:
    if count * _LENGTH.size > len(block):
        raise Damaged(f"{count} records do not fit into {len(block)} bytes")
    records, position, size = list[bytes](), 0, len(block)
    unpack, width = _LENGTH.unpack_from, _LENGTH.size
    for _ in range(count):
        start = position + width
        if start > size:
            raise Damaged("the records end before their count is reached")
        position = start + unpack(block, position)[0]
        if position > size:
            raise Damaged("a record goes beyond the end of its batch")
        records.append(bytes(block[start:position]))
    if position != size:
        raise Damaged(f"{size - position} bytes behind the last record")
    return records
