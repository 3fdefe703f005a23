"""Turns messages into the bytes of an object, block by block, and back."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import zstandard
from isal.isal_zlib import crc32

from penstock.archive.format import (
    HEADER_BYTES,
    INDEX_BYTES,
    INDEX_MESSAGES,
    ZSTD,
    check_block,
    decode_block,
    encode_block,
)
from penstock.log.format import FRAME_BYTES, encode_frames
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from penstock.archive.format import BlockHead, Header

_LEVEL = 3


class ObjectEncoder:
    """One object in the making; holds one block at a time."""

    def __init__(self, header: Header) -> None:
        self.index: list[tuple[int, int]] = []
        self.lost: list[tuple[int, int]] = []
        self.messages = 0
        self.size = 0
        self._checksum = 0
        self._header = header
        self._seed = header.seed
        self._next = header.start_offset
        self._parts: list[bytes] = []
        self._count = 0
        self._raw_bytes = 0

    @property
    def checksum(self) -> str:
        """Of everything that was handed out."""
        return f"crc32:{self._checksum:08x}"

    def begin(self) -> bytes:
        """The header."""
        return self._count_in(self._header.encode())

    def add(self, first_offset: int, messages: list[bytes]) -> list[bytes]:
        """Takes messages that follow the last ones, perhaps behind a gap; the blocks now full."""
        blocks = self._skip_to(first_offset)
        while messages:
            taken = self._fitting(messages)
            self._parts += encode_frames(messages[:taken], self._next, self._seed)
            self._count += taken
            self._raw_bytes += sum(map(len, messages[:taken])) + FRAME_BYTES * taken
            self._next += taken
            messages = messages[taken:]
            if self._count == INDEX_MESSAGES or self._raw_bytes >= INDEX_BYTES:
                blocks.append(self._block())
        return blocks

    def finish(self) -> list[bytes]:
        """The last block; what is missing at the end counts as lost."""
        return self._skip_to(self._header.end_offset)

    def _skip_to(self, offset: int) -> list[bytes]:
        """Ends the block where the next message does not follow, or none does."""
        if offset == self._next < self._header.end_offset:
            return []
        if offset > self._next:
            self.lost.append((self._next, offset))
            blocks = [self._block()] if self._count else []
            self._next = offset
            return blocks
        return [self._block()] if self._count else []

    def _fitting(self, messages: list[bytes]) -> int:
        """How many go into the block: at least one, and none behind the one that fills it."""
        room = INDEX_MESSAGES - self._count
        sizes = accumulate(len(message) + FRAME_BYTES for message in messages[:room])
        for taken, size in enumerate(sizes, 1):
            if self._raw_bytes + size >= INDEX_BYTES:
                return taken
        return min(room, len(messages))

    def _block(self) -> bytes:
        raw = b"".join(self._parts)
        first = self._next - self._count
        stored = _packed(raw) if self._header.flags & ZSTD else raw
        self.index.append((first, self.size))
        self.messages += self._count
        block = encode_block(first, self._count, len(raw), stored, self._seed)
        self._parts, self._count, self._raw_bytes = [], 0, 0
        return self._count_in(block)

    def _count_in(self, data: bytes) -> bytes:
        self.size += len(data)
        self._checksum = crc32(data, self._checksum)
        return data


def open_block(head: BlockHead, stored: bytes, flags: int, seed: int) -> list[bytes]:
    """The messages of a block. Nothing is decompressed before its checksum is verified."""
    check_block(head, stored, seed)
    raw = _unpacked(stored, head.raw_bytes) if flags & ZSTD else stored
    return decode_block(head, raw, seed)


def _packed(raw: bytes) -> bytes:
    return zstandard.ZstdCompressor(_LEVEL).compress(raw)


def _unpacked(stored: bytes, raw_bytes: int) -> bytes:
    try:
        if zstandard.frame_content_size(stored) != raw_bytes:
            raise Damaged("a compressed block has not the length it says")
        return zstandard.ZstdDecompressor().decompress(stored)
    except zstandard.ZstdError as error:
        raise Damaged(f"a compressed block cannot be read: {error}") from None


FIRST_BLOCK = HEADER_BYTES
"""Where the first block stands."""
