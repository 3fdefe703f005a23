"""Reads everything that a queue needs and names what is damaged; changes nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.model.damage import DamageReport
from penstock.model.errors import (
    BatchUnreadable,
    Damaged,
    FormatError,
    ObjectMissing,
    PenstockError,
)
from penstock.queue.entries import Entries
from penstock.queue.entry import decode_entries
from penstock.queue.fetch import MAX_BATCH_BYTES, fetch_batch
from penstock.queue.format import decode_manifest
from penstock.queue.keys import batch_id_of, chunk_key
from penstock.queue.manifest import ManifestObject
from penstock.queue.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from penstock.queue.entry import Entry
    from penstock.queue.format import Manifest
    from penstock.storage.objects import ObjectStore

_AT_ONCE: Final = 8


async def queue_bytes(objects: ObjectStore, settings: QueueSettings) -> int:
    """About as much as `verify_queue` reads; 0 where that cannot be said."""
    try:
        fetched = await objects.get(settings.manifest_path)
        manifest = decode_manifest(fetched.data) if fetched is not None else None
    except PenstockError:
        return 0
    return manifest.enqueued_bytes - manifest.dequeued_bytes if manifest is not None else 0


async def verify_queue(
    objects: ObjectStore,
    settings: QueueSettings | None = None,
    *,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    progress: Callable[[int], object] | None = None,
    url: str = "",
) -> DamageReport:
    """Reads the manifest, its chunks and every batch that waits; an empty report: no queue is here.

    `progress` is called with the bytes of each batch that was tried; names in the report begin with
    `url`. Kinds of damage: `manifest`, `batch`.

    A consumer that works at the same time takes batches away; what is missing by then is looked for
    in the manifest once more before it is called damage.
    """
    settings = settings or QueueSettings()
    prefix = f"{settings.data_path_prefix}/"
    stored = len([info.key async for info in objects.list(prefix) if batch_id_of(info.key)])
    look = _Look(objects, settings, max_batch_bytes, progress, DamageReport(url))
    try:
        await look.at_everything()
    except ObjectMissing:
        if not stored:
            return DamageReport(url)
        look.lost(
            "manifest", settings.manifest_path, f"no manifest and no identity, but {_count(stored)}"
        )
    report = look.report
    report.queues = 1
    if stored > report.batches and report.sound:
        text = f"{_count(stored - report.batches)} consumed or not enqueued yet"
        report.notes.append(f"{settings.data_path_prefix}: {text}")
    return report


def _count(batches: int) -> str:
    return "1 batch" if batches == 1 else f"{batches} batches"


class _Look:
    """One pass over a queue."""

    def __init__(
        self,
        objects: ObjectStore,
        settings: QueueSettings,
        max_batch_bytes: int,
        progress: Callable[[int], object] | None,
        report: DamageReport,
    ) -> None:
        self._objects = objects
        self._path = settings.manifest_path
        self._manifest = ManifestObject(objects, settings)
        self._entries = Entries(objects, self._path)
        self._max_batch_bytes = max_batch_bytes
        self._progress = progress or (lambda _: None)
        self.report = report

    async def at_everything(self) -> None:
        """ObjectMissing: there is no queue."""
        try:
            manifest = (await self._manifest.open(create=False)).manifest
        except FormatError as error:
            self.report.files_checked += 2  # the manifest and its identity
            self.lost("manifest", self._path, str(error))
            return
        self.report.files_checked += 2
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
            self.report.files_checked += 1
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
            text = f"{problem}: batches {position} to {end - 1} are out of reach"
            self.lost("manifest", chunk_key(self._path, number), text, end - position)
        return end

    async def _at_batches(self, entries: list[Entry]) -> None:
        await asyncio.gather(*(self._at_batch(entry) for entry in entries))

    async def _at_batch(self, entry: Entry) -> None:
        self.report.files_checked += 1
        extent = entry.extent
        size, records = (extent.batch_bytes, extent.record_count) if extent else (0, None)
        try:
            batch = await fetch_batch(self._objects, entry, max_batch_bytes=self._max_batch_bytes)
        except BatchUnreadable as error:
            if await self._still_waits(entry.sequence):
                self.lost("batch", entry.location, str(error), 1 if records is None else records)
        else:
            self.report.batches += 1
            self.report.messages += len(batch.entries)
            self.report.bytes_checked += size
        self._progress(size)

    def lost(self, kind: str, key: str, problem: str, messages: int = 0) -> None:
        """At least so many: a batch has one or more."""
        self.report.add_damage(key, 0, kind, problem, messages_lost=messages)

    async def _still_waits(self, sequence: int) -> bool:
        return sequence >= (await self._manifest.load()).manifest.first_sequence
