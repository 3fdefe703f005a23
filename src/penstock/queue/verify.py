"""Reads everything that a queue needs and names what is damaged; changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.model.errors import BatchUnreadable, Damaged, FormatError
from penstock.queue.entries import Entries
from penstock.queue.entry import decode_entries
from penstock.queue.fetch import MAX_BATCH_BYTES, fetch_batch
from penstock.queue.keys import chunk_key
from penstock.queue.manifest import ManifestObject
from penstock.queue.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from penstock.queue.entry import Entry
    from penstock.queue.format import Manifest
    from penstock.storage.objects import ObjectStore

_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class QueueFault:
    """Something that cannot be read."""

    key: str
    problem: str
    first_sequence: int | None = None
    """The batches from here to before `end_sequence` are out of reach; None: not known which."""
    end_sequence: int | None = None
    records: int | None = None
    """How many entries those batches have; None: not known, at least one a batch."""

    @property
    def batches_lost(self) -> int:
        """Those that are out of reach, as far as that is known."""
        return (self.end_sequence or 0) - (self.first_sequence or 0)

    @property
    def records_lost(self) -> int:
        """At least so many entries."""
        return self.batches_lost if self.records is None else self.records


@dataclass(frozen=True, slots=True)
class QueueReport:
    """What was read, and what could not be."""

    objects: int
    """Manifest, identity, chunks and batches that were looked at."""
    batches: int
    """Batches that are whole."""
    faults: tuple[QueueFault, ...]
    records: int = 0
    """Entries in them."""
    bytes: int = 0
    """Of them, as they are stored; 0 in version 1, which does not say it."""


async def verify_queue(
    objects: ObjectStore,
    settings: QueueSettings | None = None,
    *,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    progress: Callable[[int], object] | None = None,
) -> QueueReport:
    """Reads the manifest, its chunks and every batch that waits.

    `progress` is called with the bytes of each batch that was tried.

    ObjectMissing: there is no queue. A consumer that works at the same time takes batches away;
    what is missing by then is looked for in the manifest once more before it is called a fault.
    """
    look = _Look(objects, settings or QueueSettings(), max_batch_bytes, progress)
    await look.at_everything()
    counted = look.records, look.bytes
    return QueueReport(look.objects, look.batches, tuple(look.faults), *counted)


class _Look:
    """One pass over a queue."""

    def __init__(
        self,
        objects: ObjectStore,
        settings: QueueSettings,
        max_batch_bytes: int,
        progress: Callable[[int], object] | None,
    ) -> None:
        self._objects = objects
        self._path = settings.manifest_path
        self._manifest = ManifestObject(objects, settings)
        self._entries = Entries(objects, self._path)
        self._max_batch_bytes = max_batch_bytes
        self._progress = progress or (lambda _: None)
        self.objects = 0
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self.faults: list[QueueFault] = []

    async def at_everything(self) -> None:
        self.objects += 2
        try:
            manifest = (await self._manifest.open(create=False)).manifest
        except FormatError as error:
            self.faults.append(QueueFault(self._path, str(error)))
            return
        some: list[Entry] = []
        async for entry in self._waiting(manifest):
            some.append(entry)
            if len(some) == _AT_ONCE:
                await self._at_batches(some)
                some = []
        await self._at_batches(some)

    async def _waiting(self, manifest: Manifest) -> AsyncIterator[Entry]:
        """The entries, chunk by chunk, over those that cannot be read."""
        position = manifest.first_sequence
        for number in range(manifest.first_chunk, manifest.next_chunk):
            self.objects += 1
            try:
                chunk = await self._entries.chunk(manifest, number)
            except Damaged as error:
                position = await self._at_lost_chunk(manifest, number, position, str(error))
                continue
            head = chunk.head
            run = chunk.entries, head.entry_count, head.first_sequence
            for entry in decode_entries(*run, manifest.version, begin=position):
                yield entry
            position = max(position, head.end_sequence)
        tail = manifest.tail, manifest.tail_count, manifest.tail_first
        for entry in decode_entries(*tail, manifest.version, begin=manifest.first_sequence):
            yield entry

    async def _at_lost_chunk(
        self, manifest: Manifest, number: int, position: int, problem: str
    ) -> int:
        """Names the batches between what is known before the chunk and behind it; says their end.

        Of chunks that are lost together the first stands for the batches of all.
        """
        end = manifest.tail_first
        for behind in range(number + 1, manifest.next_chunk):
            try:
                end = (await self._entries.head(manifest, behind)).first_sequence
                break
            except Damaged:
                continue
        if await self._still_waits(end - 1):
            key = chunk_key(self._path, number)
            self.faults.append(QueueFault(key, problem, position, end))
        return end

    async def _at_batches(self, entries: list[Entry]) -> None:
        await asyncio.gather(*(self._at_batch(entry) for entry in entries))

    async def _at_batch(self, entry: Entry) -> None:
        self.objects += 1
        extent = entry.extent
        size, records = (extent.batch_bytes, extent.record_count) if extent else (0, None)
        try:
            batch = await fetch_batch(self._objects, entry, max_batch_bytes=self._max_batch_bytes)
        except BatchUnreadable as error:
            if await self._still_waits(entry.sequence):
                place = entry.location, str(error), entry.sequence, entry.sequence + 1
                self.faults.append(QueueFault(*place, records))
        else:
            self.batches += 1
            self.records += len(batch.entries)
            self.bytes += size
        self._progress(size)

    async def _still_waits(self, sequence: int) -> bool:
        return sequence >= (await self._manifest.load()).manifest.first_sequence
