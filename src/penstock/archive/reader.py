"""Reads the archive from any offset: ranged reads through the index, every checksum verified."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from penstock.archive import format as fmt
from penstock.archive.encoder import open_block
from penstock.log.cache import Batch
from penstock.log.inventory import Lost
from penstock.model.errors import (
    ArchiveUnavailable,
    Damaged,
    MetadataUnavailable,
    ObjectMissing,
    ObjectsUnavailable,
    OffsetUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.archive.catalog import Catalog
    from penstock.archive.format import Descriptor, Header
    from penstock.storage.objects import ObjectStore

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 3
"""A read that brought damaged or too few bytes is made again: it may not be the object's fault."""


_WINDOW_BYTES = 8 * 1024 * 1024
_LOST_BEFORE = "the log could not be read when it was archived"


class _Short(Damaged):
    """Fewer bytes came than the descriptor says there are."""


class _Block(NamedTuple):
    first_offset: int
    end_offset: int
    position: int
    end_position: int


class ArchiveReader:
    """A position in an archive. Messages come in order, each once; for one task at a time.

    What is damaged for good is passed over and listed in `lost`. ArchiveUnavailable: a store does
    not answer; reading on later continues where it was. Safe to cancel.
    """

    def __init__(self, catalog: Catalog, offset: int) -> None:
        self.position = offset
        self.lost: list[Lost] = []
        self._catalog = catalog
        self._ahead: list[Descriptor] = []
        self._batches: AsyncIterator[Batch] | None = None

    async def read_batch(self) -> Batch | None:
        """The next messages, at most a block; None at the present end of the archive.

        OffsetUnavailable: the position was removed by retention, or was never archived.
        """
        while True:
            if self._batches is None:
                descriptor = await self._next_object()
                if descriptor is None:
                    return None
                self._batches = self._object_batches(descriptor)
            batch = await self._advance()
            if batch is not None:
                return batch

    async def _advance(self) -> Batch | None:
        """The next batch of the object; None where it is read, or the next read begins anew."""
        assert self._batches is not None
        try:
            batch = await anext(self._batches, None)
        except BaseException:
            self._batches = None
            raise
        if batch is None:
            self._batches = None
        else:
            self.position = batch.first_offset + len(batch.messages)
        return batch

    async def _next_object(self) -> Descriptor | None:
        try:
            while self._ahead and self._ahead[0].end_offset <= self.position:
                self._ahead.pop(0)
            if self._ahead:
                return self._ahead[0]
            return await self._find()
        except MetadataUnavailable as error:
            text = f"offsets from {self.position} on are in an archive that does not answer"
            raise ArchiveUnavailable(
                f"{text}: {error}", earliest=self.position, end=self.position
            ) from error

    async def _find(self) -> Descriptor | None:
        holding = await self._catalog.holding(self.position)
        if holding is None:
            following = await self._catalog.from_offset(self.position, 1)
            if not following:
                return None
            first = await self._catalog.first()
            assert first is not None
            text = f"offset {self.position} is not in the archive, which goes on at"
            raise OffsetUnavailable(
                f"{text} {following[0].start_offset}",
                earliest=first.start_offset,
                end=await self._catalog.end_offset(),
            )
        self._ahead = [holding, *await self._catalog.from_offset(holding.end_offset)]
        return holding

    async def _object_batches(self, descriptor: Descriptor) -> AsyncIterator[Batch]:
        """The rest of an object, block by block; damaged blocks are tried again, then given up."""
        attempts = 0
        while self.position < descriptor.end_offset:
            before = self.position
            try:
                async for batch in read_object(self._catalog, descriptor, self.position):
                    self._pass_over(descriptor, batch.first_offset, _LOST_BEFORE)
                    yield batch
                self._pass_over_loss_at_end(descriptor)
                problem: Exception = _Short(f"{descriptor.object_id} ends before its messages do")
            except (ObjectMissing, Damaged) as error:
                problem = error
            except ObjectsUnavailable as error:
                raise self._unavailable(descriptor, error) from error
            attempts = attempts + 1 if self.position == before else 1
            if attempts >= _ATTEMPTS and self.position < descriptor.end_offset:
                await self._give_up(descriptor, problem)
                attempts = 0

    async def _give_up(self, descriptor: Descriptor, problem: Exception) -> None:
        """Passes over the block with the position, or over everything where the object is gone.

        An object that is as long as it should be, but does not come whole, is merely unavailable.
        """
        if isinstance(problem, _Short) and await self._is_long_enough(descriptor):
            raise self._unavailable(descriptor, problem)
        block_end = _block_with(descriptor, self.position).end_offset
        whole = isinstance(problem, ObjectMissing)
        self._pass_over(descriptor, descriptor.end_offset if whole else block_end, str(problem))

    async def _is_long_enough(self, descriptor: Descriptor) -> bool:
        try:
            info = await self._catalog.objects.head(self._catalog.object_key(descriptor.object_id))
        except ObjectsUnavailable as error:
            raise self._unavailable(descriptor, error) from error
        except ObjectMissing:
            return False
        return info.size >= descriptor.size

    def _pass_over_loss_at_end(self, descriptor: Descriptor) -> None:
        for first, end in descriptor.lost:
            if first <= self.position < end:
                self._pass_over(descriptor, end, _LOST_BEFORE)

    def _pass_over(self, descriptor: Descriptor, end: int, reason: str) -> None:
        if end > self.position:
            at = _block_with(descriptor, self.position).position
            lost = Lost(self.position, end, descriptor.object_id, at, reason)
            self.lost.append(lost)
            _LOG.error("passed over %s", lost)
            self.position = end

    def _unavailable(self, descriptor: Descriptor, error: Exception) -> ArchiveUnavailable:
        first, end = self.position, descriptor.end_offset
        text = f"offsets {first} to {end - 1} are in an archive that does not answer: {error}"
        return ArchiveUnavailable(text, earliest=first, end=end)


async def read_object(
    catalog: Catalog, descriptor: Descriptor, offset: int | None = None
) -> AsyncIterator[Batch]:
    """The messages of one object from `offset` on, a block at a time.

    For those who share out objects among themselves; `ArchiveReader` is built on it. Damaged: a
    checksum does not match, or bytes are missing; what came before is whole.
    """
    wanted = descriptor.start_offset if offset is None else offset
    header = descriptor.header
    if descriptor.compression not in (None, "zstd"):
        raise Damaged(f"{descriptor.object_id}: unknown compression {descriptor.compression!r}")
    block = _block_with(descriptor, wanted)
    blocks = _blocks(
        catalog.objects,
        catalog.object_key(descriptor.object_id),
        header,
        block.position,
        descriptor.size,
        max(1, block.end_position - block.position),
    )
    async for head, messages in blocks:
        if head.end_offset > wanted:
            skip = max(0, wanted - head.first_offset)
            yield Batch(head.first_offset + skip, messages[skip:])


async def _blocks(
    objects: ObjectStore, key: str, header: Header, start: int, size: int, first_bytes: int
) -> AsyncIterator[tuple[fmt.BlockHead, list[bytes]]]:
    """Blocks as the windows bring them; holds one, and two windows."""
    waiting = bytearray()
    seed = header.seed
    async for window in _windows(objects, key, start, size, first_bytes):
        waiting += window
        position = 0
        while len(waiting) - position >= fmt.BLOCK_BYTES:
            head = fmt.decode_block_head(waiting, position)
            end = position + fmt.BLOCK_BYTES + head.stored_bytes
            if end > len(waiting):
                break
            stored = bytes(memoryview(waiting)[position + fmt.BLOCK_BYTES : end])
            yield head, open_block(head, stored, header.flags, seed)
            position = end
        del waiting[:position]
    if waiting:
        raise _Short(f"{key} ends within a block")


async def _windows(
    objects: ObjectStore, key: str, start: int, size: int, first_bytes: int
) -> AsyncIterator[bytes]:
    """An object from `start` on: little at first, then more and more, one window ahead."""
    length = first_bytes
    fetching = asyncio.ensure_future(objects.get_range(key, start, min(size, start + length)))
    try:
        while start < size:
            window = await fetching
            expected = min(size, start + length) - start
            start, length = start + expected, min(length * 4, _WINDOW_BYTES)
            if len(window) == expected and start < size:
                ahead = objects.get_range(key, start, min(size, start + length))
                fetching = asyncio.ensure_future(ahead)
            yield window
            if len(window) < expected:
                raise _Short(f"{key}: {len(window)} of {expected} bytes came")
    finally:
        fetching.cancel()
        await asyncio.gather(fetching, return_exceptions=True)


def _block_with(descriptor: Descriptor, offset: int) -> _Block:
    """The block with the offset in it, or the last one before."""
    index = descriptor.offset_index
    at = bisect_right(index, offset, key=lambda entry: entry[0]) - 1
    first, position = index[at] if at >= 0 else (descriptor.start_offset, descriptor.header.size)
    if at + 1 < len(index):
        return _Block(first, index[at + 1][0], position, index[at + 1][1])
    return _Block(first, descriptor.end_offset, position, descriptor.size)
