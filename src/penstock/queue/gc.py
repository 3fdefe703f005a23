"""The garbage collector: deletes batches that nobody can need any more, and chunks.

It rests on no clock. Before anything is deleted the manifest gets a floor, and a producer enqueues
no batch whose name lies below the floor of the manifest that it replaces. So each batch below it is
either in the manifest that has the floor, or will never be in any. Clocks and the grace period say
only how far the floor is moved: if they are wrong, a slow producer stores a batch again.

Version 1 has no floor: there the grace period has to be long enough, and the producer looks whether
its batch is still there before it acknowledges.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.metrics import Metrics, names, shared_metrics
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import ObjectChanged, ObjectsUnavailable
from penstock.queue.changes import with_floor
from penstock.queue.chunks import lowest_id
from penstock.queue.entries import Entries
from penstock.queue.entry import decode_entries
from penstock.queue.keys import batch_id_of, batch_key, chunk_folder, chunk_of
from penstock.queue.manifest import ManifestObject
from penstock.queue.pauses import Pauses
from penstock.queue.settings import GarbageSettings
from penstock.queue.ulid import LOWEST, lowest_ulid_at, ulid_ms

if TYPE_CHECKING:
    from penstock.queue.format import Manifest
    from penstock.queue.pauses import Sleep
    from penstock.queue.ulid import Ulid
    from penstock.storage.objects import ObjectInfo, ObjectStore

_LOG = logging.getLogger(__name__)
_DELETED_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class Collected:
    """What one look found and deleted; with `dry_run`, what it would delete."""

    batches: int
    batch_bytes: int
    chunks: int
    kept: int
    """Batches that are needed, or too young."""
    failed: int
    """Objects that could not be deleted now."""


class GarbageCollector:
    """Deletes what a queue does not need any more. Fences nobody; any number may run at once."""

    def __init__(
        self,
        objects: ObjectStore,
        settings: GarbageSettings | None = None,
        *,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
        metrics: Metrics | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.settings = settings or GarbageSettings()
        self._objects = objects
        self._clock = clock or SystemClock()
        self._pauses = Pauses(randomness or random.SystemRandom(), sleep)
        self._metrics = (metrics or shared_metrics()).for_queue(self.settings.manifest_path)
        self._manifest = ManifestObject(objects, self.settings)
        self._entries = Entries(objects, self.settings.manifest_path)

    async def collect(self, *, dry_run: bool = False) -> Collected:
        """Looks once, and deletes what may go. Safe to repeat and to cancel.

        ManifestLost, Damaged: nothing is deleted while the manifest is in doubt. What could not be
        deleted is tried again by the next look.
        """
        bound, manifest = await self._bound(dry_run=dry_run)
        needed = await self._locations_below(manifest, bound)
        old, kept = await self._unneeded(bound, needed)
        if manifest.version == 1 and old:
            old = await self._still_unneeded(old)
        chunks = [] if manifest.version == 1 else await self._old_chunks(manifest)
        failed = 0 if dry_run else await self._delete([*(info.key for info in old), *chunks])
        self._entries.forget_before(manifest.first_chunk)
        size = sum(info.size for info in old)
        return Collected(len(old), size, len(chunks), kept, failed)

    # --- what may go ---------------------------------------------------------------------------

    async def _bound(self, *, dry_run: bool) -> tuple[Ulid, Manifest]:
        """Only batches named below it may go, and the manifest that says which of them must not."""
        gives_up_at = self._clock.monotonic() + self.settings.retry_s
        while True:
            loaded = await self._manifest.open(create=False)
            manifest = loaded.manifest
            wanted = await self._wanted_bound(manifest)
            if manifest.version == 1 or dry_run or wanted <= manifest.floor:
                return wanted, manifest
            try:
                swapped = await self._manifest.swap(loaded, with_floor(manifest, wanted))
            except ObjectChanged:
                await self._pauses.after_conflict()
            except ObjectsUnavailable:  # a floor that was set and not answered stands: no harm
                if self._clock.monotonic() >= gives_up_at:
                    raise
                await self._pauses.after_silence()
            else:
                self._pauses.succeeded()
                return wanted, swapped.manifest

    async def _wanted_bound(self, manifest: Manifest) -> Ulid:
        """Older than the grace period, and older than the oldest entry."""
        now_ms = self._clock.wall_ns() // 1_000_000
        bound = lowest_ulid_at(now_ms - int(self.settings.gc_grace_period_s * 1000))
        if manifest.waiting:
            oldest = await self._entries.one(manifest, manifest.first_sequence)
            name = batch_id_of(oldest.location) or LOWEST
            bound = min(bound, lowest_ulid_at(ulid_ms(name)))
        return bound

    async def _locations_below(self, manifest: Manifest, bound: Ulid) -> set[str]:
        """The batches named below the bound that are in the queue all the same."""
        found: set[str] = set()
        runs = []
        if manifest.tail_count and lowest_id(manifest) < bound:
            runs.append((manifest.tail, manifest.tail_count, manifest.tail_first))
        for number in range(manifest.first_chunk, manifest.next_chunk):
            head = await self._entries.head(manifest, number)
            if head.lowest_id < bound:
                chunk = await self._entries.chunk(manifest, number)
                runs.append((chunk.entries, head.entry_count, head.first_sequence))
        for run in runs:
            begin = manifest.first_sequence
            found |= {each.location for each in decode_entries(*run, manifest.version, begin=begin)}
        return found

    async def _unneeded(self, bound: Ulid, needed: set[str]) -> tuple[list[ObjectInfo], int]:
        old: list[ObjectInfo] = []
        prefix, kept = self.settings.data_path_prefix, 0
        async for info in self._objects.list(f"{prefix}/"):
            name = batch_id_of(info.key)
            if name is None or info.key != batch_key(prefix, name):
                continue  # not a batch of this queue, whatever it is
            if name < bound and info.key not in needed:
                old.append(info)
            else:
                kept += 1
        return old, kept

    async def _still_unneeded(self, old: list[ObjectInfo]) -> list[ObjectInfo]:
        """Without a floor: what was enqueued while the list was read is left alone."""
        manifest = (await self._manifest.load()).manifest
        run = manifest.tail, manifest.tail_count, manifest.tail_first
        needed = {entry.location for entry in decode_entries(*run, manifest.version)}
        return [info for info in old if info.key not in needed]

    async def _old_chunks(self, manifest: Manifest) -> list[str]:
        path = self.settings.manifest_path
        found = [info.key async for info in self._objects.list(chunk_folder(path))]
        numbers = {key: chunk_of(path, key) for key in found}
        return [key for key, chunk in numbers.items() if _is_below(chunk, manifest.first_chunk)]

    # --- and goes ------------------------------------------------------------------------------

    async def _delete(self, keys: list[str]) -> int:
        """How many could not be deleted."""
        failed = 0
        for start in range(0, len(keys), _DELETED_AT_ONCE):
            some = keys[start : start + _DELETED_AT_ONCE]
            try:
                await self._objects.delete(*some)
            except ObjectsUnavailable as error:
                failed += len(some)
                path = self.settings.manifest_path
                _LOG.warning("%s: %d objects are left for the next look: %s", path, failed, error)
            else:
                self._metrics.count(names.QUEUE_COLLECTED, len(some))
        return failed


def _is_below(chunk: int | None, first: int) -> bool:
    return chunk is not None and chunk < first
