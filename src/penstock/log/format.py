"""The log file, byte by byte. See docs/formats/log.md; nothing here touches a file or a clock.

    file    := header-block frame* [seal trailer] zeros
    header-block (4096 bytes) := header at 0, the same header at 2048, zeros between
    header  := magic[8] version:u16 flags:u16 reserved:u32 log_id[16] first_offset:u64
               created_at:u64 salt[8] reserved:u32 crc:u32
    frame   := offset:u64 length:u32 crc:u32 message[length]
    seal    := a frame whose offset is 2^64-1
    trailer := seal_position:u64 crc:u32 "SEAL"

All integers are little-endian. Every CRC in the file but the header's own continues from the
header's CRC, so that bytes of another file never pass for bytes of this one.
"""

from __future__ import annotations

import re
import struct
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isal.isal_zlib import crc32

from penstock.model.errors import Damaged, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC: Final = b"PNSTKLOG"
VERSION: Final = 1
HEADER_BYTES: Final = 4096
FRAME_BYTES: Final = 16
"""What a frame adds to its message."""
TRAILER_BYTES: Final = 16
SEAL_OFFSET: Final = 2**64 - 1
INDEX_STEP_BYTES: Final = 64 * 1024
"""Entries of the sparse index are at least this far apart; within large commits farther."""

_COPY_AT: Final = 2048
_HEADER = struct.Struct("<8sHHI16sQQ8sI")
_CRC = struct.Struct("<I")
_FRAME = struct.Struct("<QII")
_FRAME_CHECKED = struct.Struct("<QI")
_SEAL = struct.Struct("<QQQII")
_PAIR = struct.Struct("<QQ")
_POSITION = struct.Struct("<Q")
_TRAILER_MAGIC: Final = b"SEAL"
_CHECKED_BYTES: Final = _FRAME_CHECKED.size


@dataclass(frozen=True, slots=True)
class Header:
    """Who a file is."""

    log_id: uuid.UUID
    first_offset: int
    created_at_ns: int
    salt: bytes
    seed: int
    """The header's CRC: where every other CRC of the file begins."""


@dataclass(frozen=True, slots=True)
class Seal:
    """What a finished file says of itself."""

    end_offset: int
    """One past the last message."""
    sealed_at_ns: int
    messages: int
    lost: tuple[tuple[int, int], ...] = ()
    """Offset ranges [first, end) that a repair could not bring back."""
    index: tuple[tuple[int, int], ...] = ()
    """(offset, position) of some frames, at least INDEX_STEP_BYTES apart."""


# --- header ------------------------------------------------------------------------------------


def new_header(log_id: uuid.UUID, first_offset: int, created_at_ns: int, salt: bytes) -> Header:
    """The header of a new file; `salt` is eight random bytes."""
    packed = _pack_header(log_id, first_offset, created_at_ns, salt)
    header = Header(log_id, first_offset, created_at_ns, salt, crc32(packed))
    if crc32(bytes(_CHECKED_BYTES), header.seed) == 0:
        # Invariant: a frame of zeros is never valid, so zeroed space reads as the end.
        return new_header(log_id, first_offset, created_at_ns, crc32(salt).to_bytes(8, "little"))
    return header


def encode_header(header: Header) -> bytes:
    """The first HEADER_BYTES of a file, with the header twice."""
    packed = _pack_header(header.log_id, header.first_offset, header.created_at_ns, header.salt)
    copy = (packed + _CRC.pack(header.seed)).ljust(_COPY_AT, b"\0")
    return copy + copy


def decode_header(block: bytes) -> tuple[Header, int]:
    """The header, and how many of its two copies are damaged; Damaged where both are."""
    copies = [_decode_copy(block, at) for at in (0, _COPY_AT)]
    for header in copies:
        if header is not None:
            return header, copies.count(None)
    raise Damaged("both copies of the file header are damaged")


def _pack_header(log_id: uuid.UUID, first_offset: int, created_at_ns: int, salt: bytes) -> bytes:
    return _HEADER.pack(MAGIC, VERSION, 0, 0, log_id.bytes, first_offset, created_at_ns, salt, 0)


def _decode_copy(block: bytes, at: int) -> Header | None:
    end = at + _HEADER.size
    if len(block) < end + _CRC.size:
        return None
    (seed,) = _CRC.unpack_from(block, end)
    magic, version, _, _, log_id, first, created, salt, _ = _HEADER.unpack_from(block, at)
    if magic != MAGIC or crc32(block[at:end]) != seed:
        return None
    if version != VERSION:
        raise UnsupportedVersion(f"log file version {version}, this Penstock reads {VERSION}")
    return Header(uuid.UUID(bytes=log_id), first, created, salt, seed)


# --- frames ------------------------------------------------------------------------------------


def encode_frames(messages: Sequence[bytes], first_offset: int, seed: int) -> list[bytes]:
    """One frame a message, with offsets from `first_offset` on: head, message, head, message, ….

    Not joined: a write can gather them, and copying large commits costs more than encoding them.
    """
    parts: list[bytes] = []
    add = parts.append
    checked, whole = _FRAME_CHECKED.pack, _FRAME.pack
    offset = first_offset
    for message in messages:
        length = len(message)
        add(whole(offset, length, crc32(message, crc32(checked(offset, length), seed))))
        add(message)
        offset += 1
    return parts


def decode_frames(
    data: bytes, position: int, expected: int, end: int, seed: int
) -> tuple[list[bytes], int]:
    """The messages of consecutive valid frames `expected` to `end`, and where they stop in `data`.

    Stops, without judging why, at the first frame that is incomplete, damaged or of another offset.
    """
    messages: list[bytes] = []
    add = messages.append
    unpack = _FRAME.unpack_from
    limit = len(data) - FRAME_BYTES
    while position <= limit and expected < end:
        offset, length, crc = unpack(data, position)
        body = position + FRAME_BYTES
        after = body + length
        if offset != expected or after > len(data):
            break
        message = data[body:after]
        if crc32(message, crc32(data[position : position + _CHECKED_BYTES], seed)) != crc:
            break
        add(message)
        position = after
        expected += 1
    return messages, position


def frame_fields(data: bytes, position: int) -> tuple[int, int]:
    """(offset, length) as they stand, unverified."""
    offset: int
    length: int
    offset, length, _ = _FRAME.unpack_from(data, position)
    return offset, length


def frame_is_valid(frame: bytes, seed: int) -> bool:
    """Whether `frame`, header and message and nothing after it, carries the right CRC."""
    _, _, crc = _FRAME.unpack_from(frame)
    checked = crc32(frame[:_CHECKED_BYTES], seed)
    return bool(crc32(memoryview(frame)[FRAME_BYTES:], checked) == crc)


def would_be_valid(frame: bytes, offset: int, seed: int) -> bool:
    """Whether its CRC fits the message if the header said `offset` and the frame's own length."""
    _, _, crc = _FRAME.unpack_from(frame)
    checked = crc32(_FRAME_CHECKED.pack(offset, len(frame) - FRAME_BYTES), seed)
    return bool(crc32(memoryview(frame)[FRAME_BYTES:], checked) == crc)


def candidate_pattern(lowest: int, highest: int) -> re.Pattern[bytes]:
    """Finds, after damage, where a frame with an offset in that range or a seal might begin."""
    varying = (max((lowest ^ highest).bit_length(), 1) + 7) // 8
    fixed = re.escape(lowest.to_bytes(8, "little")[varying:])
    return re.compile(rb"(?=.{%d}%s|\xff{8})" % (varying, fixed), re.DOTALL)


# --- seal --------------------------------------------------------------------------------------


def encode_seal(seal: Seal, position: int, seed: int) -> bytes:
    """The seal's frame for `position`, and the trailer behind it."""
    head = (seal.end_offset, seal.sealed_at_ns, seal.messages, len(seal.lost), len(seal.index))
    payload = _SEAL.pack(*head) + b"".join(_PAIR.pack(*pair) for pair in seal.lost + seal.index)
    frame = b"".join(encode_frames([payload], SEAL_OFFSET, seed))
    return frame + _encode_trailer(position, seed)


def decode_seal(payload: bytes) -> Seal:
    """The seal in a frame whose CRC was verified."""
    try:
        end_offset, sealed_at_ns, messages, lost_count, index_count = _SEAL.unpack_from(payload)
        pairs = [(a, b) for a, b in _PAIR.iter_unpack(payload[_SEAL.size :])]
    except struct.error:
        raise Damaged("a seal of the wrong length") from None
    if len(pairs) != lost_count + index_count:
        raise Damaged("a seal with a wrong count")
    lost, index = tuple(pairs[:lost_count]), tuple(pairs[lost_count:])
    return Seal(end_offset, sealed_at_ns, messages, lost, index)


def decode_trailer(data: bytes, seed: int) -> int | None:
    """Where the seal begins, from the file's last TRAILER_BYTES; None in an unsealed file."""
    if len(data) != TRAILER_BYTES:
        return None
    (position,) = _POSITION.unpack_from(data)
    return position if data == _encode_trailer(position, seed) else None


def _encode_trailer(position: int, seed: int) -> bytes:
    packed = _POSITION.pack(position)
    return packed + _CRC.pack(crc32(packed, seed)) + _TRAILER_MAGIC
