"""What may happen to a manifest: each change is a pure function from one to the next.

Each is made by compare-and-swap on the one object, so that they happen in one order for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.queue.entry import Extent, encode_entry, entry_positions
from penstock.queue.format import MAX_WRITERS, ChunkHead, Manifest, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.queue.ulid import Ulid


@dataclass(frozen=True, slots=True)
class NewEntry:
    """A batch that is stored and waits for its place in the queue."""

    batch_id: Ulid
    location: str
    body: bytes
    """`encode_body` of its location and metadata."""
    batch_bytes: int
    record_count: int
    batch_crc: int


def appended(
    manifest: Manifest, entries: Sequence[NewEntry], writer_id: bytes, append_no: int
) -> Manifest:
    """With these entries behind all others, in this order, as the append of that number."""
    pieces, end_bytes = [manifest.tail], manifest.enqueued_bytes
    for sequence, entry in enumerate(entries, manifest.next_sequence):
        end_bytes += entry.batch_bytes
        extent = Extent(entry.batch_bytes, entry.record_count, entry.batch_crc, end_bytes)
        known = None if manifest.version == 1 else extent
        pieces.append(encode_entry(sequence, entry.body, known))
    changed = replace(
        manifest,
        tail=b"".join(pieces),
        tail_count=manifest.tail_count + len(entries),
        next_sequence=manifest.next_sequence + len(entries),
    )
    if manifest.version == 1:
        return changed
    others = [writer for writer in manifest.writers if writer.writer_id != writer_id]
    writers = (*others[-MAX_WRITERS + 1 :], Writer(writer_id, append_no))
    return replace(changed, enqueued_bytes=end_bytes, writers=writers)


def rolled(manifest: Manifest, chunk: ChunkHead) -> Manifest:
    """With the chunk `next_chunk`, which exists, in place of that part of the tail that it holds.

    Whoever made it took it from this queue at this chunk number. So its entries are those of the
    tail, but some that came later may lack and some may be there that were dequeued since.
    """
    end = chunk.end_sequence
    changed = replace(_trimmed(manifest, end), next_chunk=manifest.next_chunk + 1)
    if manifest.first_chunk == manifest.next_chunk and end <= manifest.first_sequence:
        return replace(changed, first_chunk=changed.next_chunk)
    return changed


def claimed(manifest: Manifest) -> Manifest:
    """With the next epoch: whoever had the one before is fenced."""
    return replace(manifest, epoch=manifest.epoch + 1)


def dequeued(manifest: Manifest, through: int, dequeued_bytes: int, first_chunk: int) -> Manifest:
    """Without the entries up to and with `through`.

    `first_chunk` is the chunk that holds the one behind it, or `next_chunk` where the tail does.
    """
    first = through + 1
    changed = replace(_trimmed(manifest, first), first_sequence=first)
    if manifest.version == 1:
        return changed
    return replace(changed, first_chunk=first_chunk, dequeued_bytes=dequeued_bytes)


def with_floor(manifest: Manifest, floor: Ulid) -> Manifest:
    """With a floor that is at least `floor`."""
    return replace(manifest, floor=max(floor, manifest.floor))


def _trimmed(manifest: Manifest, first: int) -> Manifest:
    """With a tail from `first` on."""
    dropped = min(max(first - manifest.tail_first, 0), manifest.tail_count)
    positions = entry_positions(manifest.tail, manifest.tail_count, manifest.tail_first)
    tail = manifest.tail[positions[dropped] :]
    return replace(manifest, tail=tail, tail_count=manifest.tail_count - dropped)
