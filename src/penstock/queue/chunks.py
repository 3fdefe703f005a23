"""Puts a full tail aside as a chunk, so that the manifest stays small however much waits.

A chunk's key is its number, and it is created, never overwritten. Who finds it there already takes
it as it is: whoever made it died before the manifest said so, or is about to say so now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.errors import Damaged, ObjectChanged, ObjectExists, ObjectMissing
from penstock.queue.changes import rolled
from penstock.queue.entry import decode_entries
from penstock.queue.fetch import fetch_whole
from penstock.queue.format import ChunkHead, Manifest, decode_chunk, encode_chunk
from penstock.queue.keys import batch_id_of, chunk_key
from penstock.queue.ulid import LOWEST

if TYPE_CHECKING:
    from penstock.queue.ulid import Ulid
    from penstock.storage.objects import ObjectStore


async def roll(objects: ObjectStore, manifest_path: str, manifest: Manifest) -> Manifest:
    """The manifest with its tail in a chunk. Changes nothing by itself: the swap decides."""
    key = chunk_key(manifest_path, manifest.next_chunk)
    data = encode_chunk(manifest, lowest_id(manifest))
    try:
        await objects.create(key, data)
        head = decode_chunk(data).head
    except ObjectExists:
        head = await _adopted(objects, key, manifest, data)
    return rolled(manifest, head)


async def _adopted(objects: ObjectStore, key: str, manifest: Manifest, data: bytes) -> ChunkHead:
    """The chunk that is there, whole; where it is damaged, `data` in its place."""
    try:
        found = await fetch_whole(objects, key)
    except ObjectMissing:
        raise ObjectChanged(f"the chunk {key} was needed no more; read the manifest") from None
    assert found is not None
    try:
        head = decode_chunk(found.data).head
        if head.queue_id != manifest.queue_id or head.chunk != manifest.next_chunk:
            raise Damaged(f"the chunk {key} is another one")
    except Damaged:
        # Nobody relies on it: who adopts a chunk has read it whole.
        await objects.replace(key, data, found.info.version)
        head = decode_chunk(data).head
    return head


def lowest_id(manifest: Manifest) -> Ulid:
    """The lowest name of the batches in the tail; a location without a ULID counts as lowest."""
    tail = manifest.tail, manifest.tail_count, manifest.tail_first
    entries = decode_entries(*tail, manifest.version)
    return min((batch_id_of(entry.location) or LOWEST for entry in entries), default=LOWEST)
