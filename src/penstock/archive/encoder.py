"""Turns messages into the bytes of an object, block by block, and back."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import zstandard
from isal.isal_zlib import crc32

from penstock.archive.format import (
    BLOCK_BYTES,
    INDEX_BYTES,
    INDEX_MESSAGES,
    LEAST_HEADER_BYTES,
    ZSTD,
    check_block,
    decode_block,
    decode_block_head,
    decode_header,
    encode_block,
    header_bytes,
)
from penstock.log.format import FRAME_BYTES, encode_frames
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class ObjectDecoder:
    """Takes an object apart as its bytes come; holds what is not whole yet."""

    def __init__(self) -> None:
        self.header: Header | None = None
        """None until enough has come."""
        self.position = 0
        """Where the next block stands."""
        self.checksum = 0
        """Of everything that came."""
        self._waiting = bytearray()

    @property
    def waiting_bytes(self) -> int:
        """What came behind `position`; something at the end means that the object is cut off."""
        return len(self._waiting)

    def feed(self, piece: bytes) -> Iterator[tuple[BlockHead, list[bytes]]]:
        """The blocks that are whole now, verified; `position` is each one's own while it is given.

        FormatError: the header, or the block at `position`, cannot be relied on.
        """
        self.checksum = crc32(piece, self.checksum)
        self._waiting += piece
        if self.header is None and not self._begin():
            return
        assert self.header is not None
        while len(self._waiting) >= BLOCK_BYTES:
            head = decode_block_head(self._waiting)
            end = BLOCK_BYTES + head.stored_bytes
            if len(self._waiting) < end:
                return
            stored = bytes(memoryview(self._waiting)[BLOCK_BYTES:end])
            yield head, open_block(head, stored, self.header.flags, self.header.seed)
            self._pass(end)

    def _begin(self) -> bool:
        if len(self._waiting) < LEAST_HEADER_BYTES:
            return False
        if len(self._waiting) < header_bytes(self._waiting):
            return False
        self.header = decode_header(self._waiting)
        self._pass(self.header.size)
        return True

    def _pass(self, count: int) -> None:
        del self._waiting[:count]
        self.position += count


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
