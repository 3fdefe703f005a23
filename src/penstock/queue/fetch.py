"""Reads a batch: the object that an entry names, verified and unpacked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.model.errors import (
    BatchDamaged,
    BatchMissing,
    Damaged,
    ObjectMissing,
    ObjectsUnavailable,
    UnsupportedVersion,
)
from penstock.model.settings import GIB
from penstock.queue.batch import decode_batch
from penstock.queue.keys import batch_id_of

if TYPE_CHECKING:
    from penstock.queue.entry import Entry, Metadata
    from penstock.storage.objects import Fetched, ObjectStore, Version

_OFF_LOOP_BYTES: Final = 256 * 1024
MAX_BATCH_BYTES: Final = 1 * GIB


@dataclass(frozen=True, slots=True)
class ConsumedBatch:
    """The entries of a batch, in the order in which they were produced."""

    entries: list[bytes]
    sequence: int
    location: str
    metadata: tuple[Metadata, ...]
    """One for each call of `produce`, with the index of its first entry."""

    def ranges(self) -> list[tuple[Metadata, list[bytes]]]:
        """Each metadata with its entries."""
        starts = [item.start_index for item in self.metadata]
        ends = [*starts[1:], len(self.entries)]
        spans = zip(self.metadata, starts, ends, strict=True)
        return [(item, self.entries[start:end]) for item, start, end in spans]


async def fetch_batch(
    objects: ObjectStore, entry: Entry, *, max_batch_bytes: int = MAX_BATCH_BYTES
) -> ConsumedBatch:
    """The batch that the entry names. Changes nothing and fences nobody.

    BatchMissing, BatchDamaged: it cannot be read. ObjectsUnavailable: not now.
    """
    sequence, location = entry.sequence, entry.location
    place = f"the batch {location} of sequence {sequence}"
    try:
        fetched = await fetch_whole(objects, location)
    except ObjectMissing:
        raise BatchMissing(f"{place} is missing", sequence=sequence, location=location) from None
    assert fetched is not None
    try:
        records = await _decoded(fetched.data, entry, max_batch_bytes)
    except (Damaged, UnsupportedVersion) as error:
        text = f"{place} cannot be read: {error}"
        raise BatchDamaged(text, sequence=sequence, location=location) from error
    return ConsumedBatch(records, sequence, location, entry.metadata)


async def fetch_whole(
    objects: ObjectStore, key: str, *, unless: Version | None = None
) -> Fetched | None:
    """The object, all of it: an answer that was cut short counts as none."""
    found = await objects.get(key, unless=unless)
    if found is not None and len(found.data) != found.info.size:
        raise ObjectsUnavailable(f"{key}: {len(found.data)} of {found.info.size} bytes arrived")
    return found


async def _decoded(data: bytes, entry: Entry, max_batch_bytes: int) -> list[bytes]:
    def work() -> list[bytes]:
        extent = entry.extent
        if extent is not None and extent.batch_bytes != len(data):
            raise Damaged(f"{len(data)} bytes where the manifest says {extent.batch_bytes}")
        return decode_batch(
            data,
            max_record_bytes=max_batch_bytes,
            batch_id=None if extent is None else batch_id_of(entry.location),
            crc=None if extent is None else extent.batch_crc,
        )

    records = await asyncio.to_thread(work) if len(data) >= _OFF_LOOP_BYTES else work()
    starts = [item.start_index for item in entry.metadata]
    if starts != sorted(starts) or (starts and starts[-1] > len(records)):
        raise Damaged("the metadata do not fit the records")
    return records
