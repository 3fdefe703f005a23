"""Stores batches: each under a new name, as often as it takes, until its time is over."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from penstock.metrics import names
from penstock.model.errors import ObjectMissing, ObjectsUnavailable, QueueUnreachable
from penstock.queue.pauses import Pauses
from penstock.queue.ulid import UlidSource

if TYPE_CHECKING:
    import random

    from penstock.metrics import QueueMetrics
    from penstock.model.clock import Clock
    from penstock.queue.changes import NewEntry
    from penstock.queue.filling import Filling
    from penstock.queue.pauses import Sleep
    from penstock.queue.settings import ProducerSettings
    from penstock.queue.ulid import Ulid
    from penstock.storage.objects import ObjectStore


class Uploader:
    """Stores the batches of one producer, a few at a time."""

    def __init__(
        self,
        objects: ObjectStore,
        settings: ProducerSettings,
        version: int,
        floor: Ulid,
        clock: Clock,
        randomness: random.Random,
        sleep: Sleep,
        metrics: QueueMetrics,
    ) -> None:
        self.floor = floor
        """No name is below it: the manifest would refuse it."""
        self._objects = objects
        self._settings = settings
        self._version = version
        self._clock = clock
        self._randomness = randomness
        self._sleep = sleep
        self._metrics = metrics
        self._ids = UlidSource(clock, randomness)
        self._turns = asyncio.Semaphore(settings.max_uploads)

    async def store(self, filling: Filling) -> None:
        """Returns when the batch is stored and has an entry, or when its watcher has failed."""
        pauses = Pauses(self._randomness, self._sleep)
        async with self._turns:
            batch_id = self._ids.next(self.floor)
            data, entry = await filling.encode(batch_id, self._settings, self._version)
            while not filling.watcher.done:
                try:
                    await self._objects.put(entry.location, data)
                except ObjectsUnavailable as error:
                    if self._clock.monotonic() >= filling.gives_up_at:
                        self._give_up(filling, error)
                    else:
                        await pauses.after_silence()
                else:
                    filling.entry = entry
                    return

    async def is_stored(self, filling: Filling, entry: NewEntry) -> bool:
        """Looks for the object of an entry, and stores it again where it is gone.

        False: its time was over before anybody could say.
        """
        pauses = Pauses(self._randomness, self._sleep)
        while True:
            try:
                await self._objects.head(entry.location)
            except ObjectMissing:
                await self._store_again(filling, entry)
            except ObjectsUnavailable:
                if self._clock.monotonic() >= filling.gives_up_at:
                    return False
            else:
                return True
            await pauses.after_silence()

    async def _store_again(self, filling: Filling, entry: NewEntry) -> None:
        data, _ = await filling.encode(entry.batch_id, self._settings, self._version)
        self._metrics.count(names.QUEUE_REPEATED_UPLOADS)
        with contextlib.suppress(ObjectsUnavailable):  # the next look tells
            await self._objects.put(entry.location, data)

    def _give_up(self, filling: Filling, error: ObjectsUnavailable) -> None:
        failure = QueueUnreachable(f"a batch could not be stored in time: {error}")
        failure.__cause__ = error
        self._metrics.count(names.QUEUE_FAILED_BATCHES)
        filling.watcher.fail(failure)
