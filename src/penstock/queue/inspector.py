"""Looks into a queue without fencing anybody and without changing anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import Damaged
from penstock.queue.entries import Entries
from penstock.queue.fetch import ConsumedBatch, fetch_batch
from penstock.queue.format import Manifest, encode_manifest
from penstock.queue.manifest import ManifestObject
from penstock.queue.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.queue.entry import Entry
    from penstock.storage.objects import ObjectStore

_ENTRIES_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue at one moment."""

    manifest_path: str
    manifest_version: int
    manifest_bytes: int
    chunks: int
    """Objects that hold older entries."""
    queue_id: str | None
    """None in version 1."""
    epoch: int
    """How often a consumer has claimed the queue."""
    first_sequence: int
    next_sequence: int
    waiting: int
    """Batches enqueued and not dequeued."""
    waiting_bytes: int
    oldest_time_ms: int | None
    """When the first entry of the oldest batch was produced; None in an empty queue."""
    oldest_age_s: float | None


class Inspector:
    """A reader beside the consumer."""

    def __init__(
        self,
        objects: ObjectStore,
        settings: QueueSettings | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._objects = objects
        self._settings = settings or QueueSettings()
        self._clock = clock or SystemClock()
        self._manifest = ManifestObject(objects, self._settings)
        self._entries = Entries(objects, self._settings.manifest_path)

    async def status(self) -> QueueStatus:
        """The queue as it is now. ObjectMissing: there is none."""
        manifest = (await self._manifest.open(create=False)).manifest
        oldest_ms = await self._oldest_ms(manifest)
        now_ms = self._clock.wall_ns() // 1_000_000
        return QueueStatus(
            manifest_path=self._settings.manifest_path,
            manifest_version=manifest.version,
            manifest_bytes=len(encode_manifest(manifest)),
            chunks=manifest.next_chunk - manifest.first_chunk,
            queue_id=None if manifest.version == 1 else manifest.queue_id.hex(),
            epoch=manifest.epoch,
            first_sequence=manifest.first_sequence,
            next_sequence=manifest.next_sequence,
            waiting=manifest.waiting,
            waiting_bytes=await self._waiting_bytes(manifest),
            oldest_time_ms=oldest_ms,
            oldest_age_s=None if oldest_ms is None else max(now_ms - oldest_ms, 0) / 1000,
        )

    async def entries(self, begin: int | None = None) -> AsyncIterator[Entry]:
        """The entries that wait, from the sequence `begin` on, to the present end.

        What is dequeued meanwhile is left out.
        """
        manifest = (await self._manifest.open(create=False)).manifest
        end, position = manifest.next_sequence, max(begin or 0, manifest.first_sequence)
        while position < end:
            try:
                found = await self._entries.read(manifest, position, _ENTRIES_AT_ONCE)
            except Damaged:
                before, manifest = manifest, (await self._manifest.load()).manifest
                if manifest.first_chunk == before.first_chunk:
                    raise  # it was not the consumer that took the chunk away
                position = max(position, manifest.first_sequence)
                continue
            for entry in found:
                if entry.sequence < end:
                    yield entry
            position = found[-1].sequence + 1

    async def batch(self, entry: Entry) -> ConsumedBatch:
        """The batch of an entry; BatchMissing, BatchDamaged: it cannot be read."""
        return await fetch_batch(self._objects, entry)

    async def _oldest_ms(self, manifest: Manifest) -> int | None:
        if not manifest.waiting:
            return None
        oldest = await self._entries.one(manifest, manifest.first_sequence)
        return min((item.ingestion_time_ms for item in oldest.metadata), default=None)

    async def _waiting_bytes(self, manifest: Manifest) -> int:
        """Version 1 does not say it: there each batch is looked for."""
        if manifest.version != 1:
            return manifest.enqueued_bytes - manifest.dequeued_bytes
        entries = await self._entries.read(manifest, manifest.first_sequence, manifest.waiting)
        needed = {entry.location for entry in entries}
        stored = self._objects.list(f"{self._settings.data_path_prefix}/")
        return sum([info.size async for info in stored if info.key in needed])
