"""Finds entries by their sequence: in the manifest's tail, or in one of its chunks."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.model.errors import Damaged, ObjectMissing
from penstock.queue.entry import Entry, decode_entries
from penstock.queue.fetch import fetch_whole
from penstock.queue.format import (
    CHUNK_HEAD_BYTES,
    Chunk,
    ChunkHead,
    Manifest,
    decode_chunk,
    decode_chunk_head,
)
from penstock.queue.keys import chunk_key

if TYPE_CHECKING:
    from penstock.storage.objects import ObjectStore

_CHUNKS_KEPT: Final = 4


class Entries:
    """Reads entries of one queue. Chunks never change, so what was read once may be kept."""

    def __init__(self, objects: ObjectStore, manifest_path: str) -> None:
        self._objects = objects
        self._path = manifest_path
        self._heads: dict[int, ChunkHead] = {}
        self._chunks: OrderedDict[int, Chunk] = OrderedDict()

    async def read(self, manifest: Manifest, begin: int, limit: int) -> list[Entry]:
        """Up to `limit` entries from the sequence `begin` on, which was not dequeued."""
        found: list[Entry] = []
        position = begin
        while len(found) < limit and position < manifest.next_sequence:
            more = await self._run(manifest, position, limit - len(found))
            found += more
            position = found[-1].sequence + 1
        return found

    async def one(self, manifest: Manifest, sequence: int) -> Entry:
        """The entry of that sequence, which was not dequeued."""
        (entry,) = await self.read(manifest, sequence, 1)
        return entry

    async def chunk_with(self, manifest: Manifest, sequence: int) -> int:
        """The number of the chunk that holds the sequence; `next_chunk` where the tail does."""
        if sequence >= manifest.tail_first:
            return manifest.next_chunk
        low, high = manifest.first_chunk, manifest.next_chunk - 1
        likely = self._likely(sequence, low, high)
        if likely is not None:
            await self.chunk(manifest, likely)  # all of it: who looks for it reads it
        while low < high:
            middle = (low + high) // 2 if likely is None else likely
            likely = None
            head = await self.head(manifest, middle)
            if sequence >= head.end_sequence:
                low = middle + 1
            elif sequence < head.first_sequence:
                high = middle - 1
            else:
                return middle
        if low == high:
            head = await self.head(manifest, low)
            if head.first_sequence <= sequence < head.end_sequence:
                return low
        raise Damaged(f"no chunk of the manifest {self._path} holds the sequence {sequence}")

    async def head(self, manifest: Manifest, chunk: int) -> ChunkHead:
        """What a chunk says of itself."""
        if chunk not in self._heads:
            key = chunk_key(self._path, chunk)
            try:
                data = await self._objects.get_range(key, 0, CHUNK_HEAD_BYTES)
            except ObjectMissing:
                raise Damaged(f"the chunk {key} of the manifest is missing") from None
            if len(data) < CHUNK_HEAD_BYTES:  # cut short on the way, or damaged: the whole tells
                return (await self.chunk(manifest, chunk)).head
            self._heads[chunk] = self._checked(manifest, chunk, decode_chunk_head(data))
        return self._heads[chunk]

    async def chunk(self, manifest: Manifest, chunk: int) -> Chunk:
        """A whole chunk."""
        if chunk in self._chunks:
            self._chunks.move_to_end(chunk)
            return self._chunks[chunk]
        key = chunk_key(self._path, chunk)
        try:
            fetched = await fetch_whole(self._objects, key)
        except ObjectMissing:
            raise Damaged(f"the chunk {key} of the manifest is missing") from None
        assert fetched is not None
        try:
            found = decode_chunk(fetched.data)
        except Damaged as error:
            raise Damaged(f"the chunk {key} of the manifest: {error}") from None
        self._heads[chunk] = self._checked(manifest, chunk, found.head)
        self._chunks[chunk] = found
        if len(self._chunks) > _CHUNKS_KEPT:
            self._chunks.popitem(last=False)
        return found

    def forget_before(self, chunk: int) -> None:
        """Drops what is kept of chunks that are not needed any more."""
        for number in [number for number in self._heads if number < chunk]:
            del self._heads[number]
            self._chunks.pop(number, None)

    async def _run(self, manifest: Manifest, begin: int, limit: int) -> list[Entry]:
        """Some entries from `begin` on, all from one object."""
        number = await self.chunk_with(manifest, begin)
        if number == manifest.next_chunk:
            tail, count, first = manifest.tail, manifest.tail_count, manifest.tail_first
        else:
            chunk = await self.chunk(manifest, number)
            tail, count = chunk.entries, chunk.head.entry_count
            first = chunk.head.first_sequence
        entries = decode_entries(tail, count, first, manifest.version, begin=begin)
        return list(islice(entries, limit))

    def _likely(self, sequence: int, low: int, high: int) -> int | None:
        """A reader mostly wants a chunk that it has, or the one behind it."""
        for number in reversed(self._chunks):
            head = self._chunks[number].head
            if head.first_sequence <= sequence < head.end_sequence and low <= number <= high:
                return number
            if sequence == head.end_sequence and low <= number + 1 <= high:
                return number + 1
        return None

    def _checked(self, manifest: Manifest, chunk: int, head: ChunkHead) -> ChunkHead:
        if head.queue_id != manifest.queue_id or head.chunk != chunk:
            key = chunk_key(self._path, chunk)
            raise Damaged(f"the chunk {key} of the manifest is another one")
        return head
