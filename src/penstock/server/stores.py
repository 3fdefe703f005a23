"""The stores of one worker: one for each namespace and signal, opened with the first request."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
from typing import TYPE_CHECKING, Any, Final

from penstock.model.errors import (
    DiskFull,
    MetadataUnavailable,
    ObjectsUnavailable,
    PenstockError,
    Retryable,
    StoreFull,
)
from penstock.model.settings import SizePolicy
from penstock.model.topics import Topic
from penstock.otel.signals import Signal
from penstock.server.capping import LEDGER, capped_settings, stores_cap
from penstock.server.refusals import Cause, Refusal, refusal_of, unavailable
from penstock.store import Store
from penstock.store.jobs import shared_upkeep
from penstock.store.outside import LAKE
from penstock.store.size_cap import SizeCap
from penstock.store.store import FREE_BYTES

if TYPE_CHECKING:
    from penstock.archive import Archiver, Archiving
    from penstock.metrics import Metrics
    from penstock.segment import SegmentInfo
    from penstock.server.config import Config
    from penstock.storage import DataDirectory
    from penstock.store.decoding import Decoder

_LOG = logging.getLogger(__name__)
MAX_TOPICS: Final = 1000
"""Anyone who may choose a namespace may make topics; each costs files."""


_REMEMBERED_S: Final = 30.0

_topic = functools.lru_cache(MAX_TOPICS)(Topic)


class Stores:
    """Opens each store once; safe for the tasks of one event loop."""

    def __init__(
        self,
        directory: DataDirectory,
        partition: int,
        config: Config,
        decoders: dict[Signal, Decoder],
        metrics: Metrics,
        archiver: Archiver | None = None,
    ) -> None:
        """With an `archiver` each store is archived from when it is opened."""
        self._directory = directory
        self._partition = partition
        self._config = config
        self._settings = capped_settings(config)
        self._decoders = decoders
        self._metrics = metrics
        self._archiver = archiver
        self._archivings: dict[Store, Archiving] = {}
        self._open: dict[_Key, Store] = {}
        self._opening: dict[_Key, asyncio.Task[Store]] = {}
        self._missing: dict[_Key, str] = {}
        self._turned_away = -math.inf
        """When the cap had last no room for a new topic."""
        self._closed = False

    async def open_all(self) -> None:
        """Opens what the last process left: it is sealed and delivered without a request.

        Partitions of workers that are no more are shared out.
        """
        for partition in list(self._directory.partitions()):
            signal = _signal_of(partition.topic)
            if partition.number % self._config.workers == self._partition and signal is not None:
                self._missing[partition.topic, partition.number] = "not opened yet"
        await self.open_missing()

    async def open_missing(self) -> None:
        """Tries again what could not be opened, and what stopped since.

        It must not keep the others from being served.
        """
        stopped = [key for key, store in self._open.items() if self._has_stopped(store)]
        for topic, number in [*self._missing, *stopped]:
            signal = _signal_of(topic)
            assert signal is not None
            with contextlib.suppress(Refusal):
                await self._open_once((topic, number), signal)

    def check_owner(self, store: Store) -> None:
        """Fenced where another owner has the topic, or may have. Last before an answer."""
        archiving = self._archivings.get(store)
        if archiving is not None:
            archiving.check()

    def failures(self) -> list[str]:
        """What is wrong with those that cannot be used at present."""
        closed = [f"{topic}/{number}: {why}" for (topic, number), why in self._missing.items()]
        stopped = [(store.name, store.log.failure or store.failure) for store in self.all()]
        unarchived = self._archiver.failures() if self._archiver is not None else []
        full = [f"{store.name}: {store.shortage}" for store in self.all() if store.shortage]
        if time.monotonic() - self._turned_away < _REMEMBERED_S:
            full.append("retention.size_cap leaves no room for new topics")
        broken = [f"{name}: {why}" for name, why in stopped if why is not None]
        return closed + broken + full + unarchived

    async def get(self, namespace: str, signal: Signal) -> Store:
        """The store; Refusal where it cannot be opened."""
        try:
            key = (_topic(namespace, signal.value), self._partition)
        except PenstockError as error:
            raise Refusal(Cause.INVALID, str(error)) from None
        store = self._open.get(key)
        if store is not None and not self._has_stopped(store):
            return store
        known = len(self._open) + len(self._opening) + len(self._missing)
        if key not in self._opening and key not in self._missing and known >= MAX_TOPICS:
            raise Refusal(Cause.BUSY, f"there are {MAX_TOPICS} topics already", retry_after_s=60.0)
        return await self._open_once(key, signal)

    def all(self) -> list[Store]:
        """Those that are open."""
        return list(self._open.values())

    def places(self) -> list[tuple[Topic, int, Store]]:
        """The same, with where each is."""
        return [(topic, number, store) for (topic, number), store in self._open.items()]

    def find(self, topic: Topic, partition: int) -> Store | None:
        """The one of a partition; None where it is not open here."""
        return self._open.get((topic, partition))

    async def close(self) -> None:
        """Seals and closes all of them."""
        self._closed = True
        for task in list(self._opening.values()):
            await asyncio.wait([task])
        if self._archiver is not None:
            await self._archiver.close()
        stores, self._open = list(self._open.values()), {}
        await asyncio.gather(*(store.close_async() for store in stores))

    def _has_stopped(self, store: Store) -> bool:
        archiving = self._archivings.get(store)
        fenced = archiving is not None and archiving.failure is not None
        return fenced or store.failure is not None or store.log.failure is not None

    async def _open_once(self, key: _Key, signal: Signal) -> Store:
        if self._closed:
            raise Refusal(Cause.UNAVAILABLE, "the server is stopping", retry_after_s=5.0)
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.create_task(self._open_store(key, signal))
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        return await asyncio.shield(task)

    async def _open_store(self, key: _Key, signal: Signal) -> Store:
        stopped = self._open.pop(key, None)
        try:
            if stopped is not None:
                _LOG.warning("%s is opened again", stopped.name)
                await self._close_one(stopped)
            store = await self._open_and_archive(key, signal)
        except PenstockError as error:
            self._note_missing(key, error)
            if isinstance(error, DiskFull):  # it has nothing to let go; others may have
                self._make_room(FREE_BYTES)
            if isinstance(error, Retryable):
                raise refusal_of(error) from error
            raise unavailable(error) from error  # the request itself was not looked at yet
        except OSError as error:
            self._note_missing(key, error)
            raise Refusal(Cause.UNAVAILABLE, str(error), retry_after_s=5.0) from error
        self._missing.pop(key, None)
        self._open[key] = store
        return store

    async def _close_one(self, store: Store) -> None:
        archiving = self._archivings.pop(store, None)
        if archiving is not None and self._archiver is not None:
            await self._archiver.detach(archiving)
        await store.close_async()

    async def _open_and_archive(self, key: _Key, signal: Signal) -> Store:
        """A store on an empty disk goes on behind its archive."""
        if self._archiver is None:
            return await asyncio.to_thread(self._open_blocking, *key, signal)
        from penstock.archive.sources import PARTY

        partition = self._directory.partition(*key)
        claim = await self._archiver.claim(partition)
        store: Store | None = None
        try:
            store = await asyncio.to_thread(
                self._open_blocking, *key, signal, least_offset=claim.end_offset, keep_for=[PARTY]
            )
            self._archivings[store] = await self._archiver.attach(partition, store, claim)
        except BaseException:
            if store is not None:
                await store.close_async()
            with contextlib.suppress(MetadataUnavailable):  # it runs out by itself
                await claim.lease.release()
            raise
        return store

    def _note_missing(self, key: _Key, error: Exception) -> None:
        """It is tried again, and its problem shown; new topics are left to their clients.

        Not where it is the archive that keeps them from being opened: that is for people to see.
        """
        topic, number = key
        waits = isinstance(error, (ObjectsUnavailable, MetadataUnavailable))
        if waits or self._directory.partition(topic, number).folder.is_dir():
            if self._missing.get(key) != str(error):
                _LOG.error("%s/%d cannot be opened: %s", topic, number, error)
            self._missing[key] = str(error)

    def _open_blocking(self, topic: Topic, number: int, signal: Signal, **archived: Any) -> Store:
        name, folder = f"{topic}/{number}", self._directory.partition(topic, number).folder
        cap = self._cap(name)
        if cap is not None and not folder.is_dir() and not cap.enter():
            self._turned_away = time.monotonic()
            text = f"retention.size_cap leaves no room for the new topic {name}"
            raise StoreFull(text, retry_after_s=5.0)
        store = Store.open(
            folder,
            self._settings,
            name=name,
            decoder=self._decoders[signal],
            budget=cap,
            metrics=self._metrics,
            make_room=self._make_room,
            registered=_own_subscribers(self._config),
            **archived,
        )
        for problem in store.problems:
            _LOG.error("%s: %s", name, problem)
        return store

    def make_room(self, size: int) -> bool:
        """Lets the oldest segment of all stores go, and more of its store; False where none may.

        For `drop_oldest` alone, when the disk itself is full. One after the other: what was freed
        is seen at the next look. Where no segment may go, logs are sealed and what is in segments
        already leaves them.
        """
        oldest = [(segments[0].last_ingested_at_ns, store) for store, segments in self._segments()]
        if not oldest or self._settings.size_policy is not SizePolicy.DROP_OLDEST:
            for store in self.all():
                store.free(size)
            return False
        min(oldest, key=lambda each: each[0])[1].free(size)
        return True

    def _make_room(self, size: int) -> None:
        """Within a turn of a log, where no store's lock may be waited for: in the background."""

        def run() -> None:
            self.make_room(size)

        shared_upkeep().submit(run)

    def _segments(self) -> list[tuple[Store, tuple[SegmentInfo, ...]]]:
        return [(store, found) for store in self.all() if (found := store.segments)]

    def _cap(self, name: str) -> SizeCap | None:
        """Its view of the one cap."""
        cap = stores_cap(self._config)
        if cap is None:
            return None
        borrows = self._config.retention.size_cap_sharing == "fair"
        return SizeCap(self._directory.root / LEDGER, cap, key=name, borrows=borrows)


def _own_subscribers(config: Config) -> tuple[str, ...]:
    """Who takes data from every store, and must miss no segment of it."""
    return (LAKE,) if config.lake.enabled else ()


_Key = tuple[Topic, int]


def _signal_of(topic: Topic) -> Signal | None:
    return next((signal for signal in Signal if signal.value == topic.name), None)
