"""Appends to the manifest: until it worked, in order, and never twice.

A swap whose response was lost may have been done, or may be done yet as long as nobody else has
changed the manifest. So its entries are remembered as unsure until a manifest of another version
has been read. That one names each writer's last append, and decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.metrics import names
from penstock.model.errors import ObjectChanged, ObjectsUnavailable
from penstock.queue.changes import NewEntry, appended
from penstock.queue.chunks import roll
from penstock.queue.format import MAX_WRITERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.metrics import QueueMetrics
    from penstock.model.clock import Clock
    from penstock.queue.entries import Entries
    from penstock.queue.format import Manifest
    from penstock.queue.manifest import Loaded, ManifestObject
    from penstock.queue.pauses import Pauses
    from penstock.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class Attempt:
    """A swap that was sent."""

    base: Loaded
    append_no: int
    entries: tuple[NewEntry, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of entries. Those that stand nowhere here still wait."""

    landed: Sequence[tuple[NewEntry, int]] = ()
    """In the manifest, with their sequences."""
    stale: Sequence[NewEntry] = ()
    """Named below the floor: their batches may be gone, and are to be stored under new names."""
    unknown: Sequence[NewEntry] = ()
    """In the manifest once or never, and nobody can say which any more."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was decided."""
        return not (self.landed or self.stale or self.unknown)


@dataclass(slots=True)
class Appender:
    """The appends of one producer, one at a time."""

    objects: ObjectStore
    manifest: ManifestObject
    entries: Entries
    writer_id: bytes
    tail_bytes: int
    clock: Clock
    pauses: Pauses
    metrics: QueueMetrics
    _append_no: int = 0
    _unsure: list[Attempt] = field(default_factory=list)
    _must_read: bool = False
    _has_company: bool = False

    @property
    def unsure(self) -> list[NewEntry]:
        """Entries of appends whose outcome is not known yet."""
        each = {entry.batch_id: entry for attempt in self._unsure for entry in attempt.entries}
        return list(each.values())

    async def append(
        self, ready: Callable[[], Sequence[NewEntry]], is_over: Callable[[], bool]
    ) -> Outcome:
        """Appends what `ready` gives, asked anew for each try.

        An empty outcome: `is_over` said so before anything worked. Raises what no further try can
        mend. Cancelled, it may have appended.
        """
        while True:
            try:
                outcome = await self._try(ready)
            except ObjectChanged:
                self._must_read = True
                self.metrics.count(names.QUEUE_CONFLICTS)
                await self.pauses.after_conflict()
            except ObjectsUnavailable:
                self._must_read = True
                await self.pauses.after_silence()
            else:
                return outcome
            if is_over():
                return Outcome()

    async def _try(self, ready: Callable[[], Sequence[NewEntry]]) -> Outcome:
        known = await self.manifest.known()
        base = await self.manifest.load() if self._must_read else known
        # Where others append too, a look before the next swap is cheaper than a swap in vain.
        self._has_company = base is not known
        if self._unsure and base.version != self._unsure[0].base.version:
            found = await self._decide(base.manifest)
            self._unsure.clear()
            if found.landed or found.unknown:
                return found
        entries = tuple(ready())
        stale = [entry for entry in entries if entry.batch_id < base.manifest.floor]
        if stale or not entries:
            return Outcome(stale=stale)
        return await self._swap(base, entries)

    async def _swap(self, base: Loaded, entries: tuple[NewEntry, ...]) -> Outcome:
        started = self.clock.monotonic()
        manifest = base.manifest
        if manifest.version != 1 and len(manifest.tail) > self.tail_bytes:
            manifest = await roll(self.objects, self.manifest.path, manifest)
        self._append_no += 1
        attempt = Attempt(base, self._append_no, entries)
        after = appended(manifest, entries, self.writer_id, self._append_no)
        self._unsure.append(attempt)  # also when the task is cancelled in the middle
        try:
            await self.manifest.swap(base, after)
        except ObjectChanged:
            self._unsure.remove(attempt)
            raise
        finally:
            self.pauses.took(self.clock.monotonic() - started)
        # Any other attempt was made on the version that is now gone, so it never comes.
        self._unsure.clear()
        self._must_read = self._has_company
        seconds = self.clock.monotonic() - started
        self.pauses.succeeded()
        size = sum(entry.batch_bytes for entry in entries)
        self.metrics.appended(len(entries), size, seconds)
        return _landed(attempt)

    async def _decide(self, manifest: Manifest) -> Outcome:
        """What became of the unsure attempts, all made on one version that is gone."""
        mine = [writer for writer in manifest.writers if writer.writer_id == self.writer_id]
        if mine:
            last = mine[0].append_no
            landed = [attempt for attempt in self._unsure if attempt.append_no == last]
            return _landed(landed[0]) if landed else Outcome()
        if manifest.version != 1 and len(manifest.writers) < MAX_WRITERS:
            return Outcome()  # nobody was forgotten yet, so it never appended
        return await self._look_for(manifest)

    async def _look_for(self, manifest: Manifest) -> Outcome:
        """The same where writers are not remembered: by the entries themselves."""
        first = self._unsure[0].base.manifest.next_sequence
        if first < manifest.first_sequence:
            return Outcome(unknown=self.unsure)
        most = max(len(attempt.entries) for attempt in self._unsure)
        found = [entry.location for entry in await self.entries.read(manifest, first, most)]
        for attempt in sorted(self._unsure, key=lambda attempt: -len(attempt.entries)):
            wanted = [entry.location for entry in attempt.entries]
            if found[: len(wanted)] == wanted:
                return _landed(attempt)
        return Outcome()


def _landed(attempt: Attempt) -> Outcome:
    first = attempt.base.manifest.next_sequence
    numbers = range(first, first + len(attempt.entries))
    return Outcome(landed=tuple(zip(attempt.entries, numbers, strict=True)))
