"""The stores of one worker: one for each namespace and signal, opened with the first request.

There may be many more topics than stores are open (`residents`). What the last process left is
opened after the worker listens, one after the other; a request does not wait for its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.log.pool import shared_upkeep
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
from penstock.server.descriptors import limit, most_open_stores
from penstock.server.keeping.opening import signal_of
from penstock.server.keeping.residents import Asleep, Residents, describe
from penstock.server.refusals import Cause, Refusal, refusal_of, unavailable
from penstock.store.outside import keep_reserve
from penstock.store.store import FREE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractAsyncContextManager

    from penstock.otel.signals import Signal
    from penstock.segment import SegmentInfo
    from penstock.server.configuration.config import Config
    from penstock.server.keeping.opening import Opener
    from penstock.server.keeping.residents import Key
    from penstock.store import Store
    from penstock.store.outside import Delivered, Taken

_LOG = logging.getLogger(__name__)
_REMEMBERED_S: Final = 30.0
_FIRST: Final = 64
"""Opened before the worker listens, of what the last process left."""
_ROOM_S: Final = 1.0
_GONE_S: Final = 0.5

_topic = functools.lru_cache(1000)(Topic)


class Stores:
    """Opens each store once; safe for the tasks of one event loop."""

    def __init__(self, opener: Opener, partition: int, config: Config) -> None:
        self._opener = opener
        self._partition = partition
        self._config = config
        self._settings = opener.settings
        self._segments_stay = (
            self._settings.size_policy is SizePolicy.BACKPRESSURE
            and self._settings.max_age_s is None
            and config.retention.size_cap is None
        )
        """Until every subscriber has them: a closed store need not be opened to remove any."""
        self._woken_by: Delivered | None = None
        self._residents = Residents(most_open_stores(limit()))
        self._opening: dict[Key, asyncio.Task[Store]] = {}
        self._closing: dict[Key, asyncio.Task[None]] = {}
        self._missing: dict[Key, str] = {}
        self._visited = asyncio.Event()
        """Set when everything that the last process left was opened, or could not be."""
        self._loop = asyncio.get_running_loop()
        self._closed = False

    async def open_first(self) -> None:
        """Lists what the last process left, and opens it as far as that takes no time.

        Partitions of workers that are no more are shared out.
        """
        if self._config.lake.enabled and self._partition == 0:
            # While there is room: a full disk is emptied by what the pipeline writes down.
            await asyncio.to_thread(keep_reserve, self._config.data_dir)
        for partition in list(self._opener.directory.partitions()):
            signal = signal_of(partition.topic)
            if partition.number % self._config.workers == self._partition and signal is not None:
                self._residents.expect((partition.topic, partition.number))
        for key in self._residents.unvisited()[: min(_FIRST, self._residents.most)]:
            with contextlib.suppress(Refusal):
                await self._open_once(key)

    async def open_rest(self) -> None:
        """Opens the others, so that what they hold is sealed and delivered without a request."""
        for key in self._residents.unvisited():
            while self._residents.is_unvisited(key) and not self._closed:
                try:
                    await self._open_once(key)
                    self._residents.first_to_go(key)
                except Refusal:
                    if self._residents.is_unvisited(key):  # for want of room
                        await asyncio.sleep(_ROOM_S)
        self._visited.set()

    async def open_missing(self) -> None:
        """Tries again what could not be opened, and what stopped since.

        It must not keep the others from being served.
        """
        stopped = [key for key, store in self._residents.items() if self._opener.has_stopped(store)]
        for key in [*self._missing, *stopped]:
            with contextlib.suppress(Refusal):
                await self._open_once(key)

    async def close_idle(self) -> None:
        """Closes what nobody has used for long, beyond a few; it is opened again when needed."""
        while self._opener.archiver is None and not self._closed:
            idle = self._residents.idle(self._loop.time())  # anew: others close and use them, too
            able = (k for k, store in idle if self._may_sleep(store) and store.is_at_rest)
            if (key := next(able, None)) is None:
                return
            await self._put_to_sleep(key)

    async def hear_of_the_pipeline(self) -> None:
        """Acknowledges what it has, also where the store has to be opened for it."""
        try:
            await asyncio.to_thread(self._opener.delivered.tell, self.all())
            delivered = await asyncio.to_thread(self._opener.delivered.read)
        except (OSError, PenstockError) as error:
            _LOG.error("what the pipeline has could not be acknowledged: %s", error)
            return
        if delivered is not None and delivered is not self._woken_by:
            with contextlib.suppress(Refusal):  # the others have their turn at the next look
                await self._wake(delivered)
                self._woken_by = delivered

    async def _wake(self, delivered: Delivered) -> None:
        """Opens what is closed and has something that the pipeline has by now; it is told then.

        It waits until that is gone: closed before, it would be there until it is opened again.
        """
        for key, asleep in self._residents.asleep():
            if asleep is None or not asleep.segments:
                continue
            if delivered.through.get(asleep.name) != asleep.told:
                async with self._using(key) as store:
                    await _until_fewer(store, asleep.segments)

    async def all_visited(self) -> None:
        """Returns when `open_rest` has come to its end."""
        await self._visited.wait()

    def failures(self) -> list[str]:
        """What is wrong with those that cannot be used at present."""
        closed = [f"{topic}/{number}: {why}" for (topic, number), why in self._missing.items()]
        stopped = [(store.name, store.log.failure or store.failure) for store in self.all()]
        full = [f"{store.name}: {store.shortage}" for store in self.all() if store.shortage]
        broken = [f"{name}: {why}" for name, why in stopped if why is not None]
        return closed + broken + full + self._opener.failures()

    def check_owner(self, store: Store) -> None:
        """Fenced where another owner has the topic, or may have. Last before an answer."""
        self._opener.check_owner(store)

    def using(self, namespace: str, signal: Signal) -> AbstractAsyncContextManager[Store]:
        """The store, which stays open for so long; Refusal where it cannot be opened."""
        try:
            key = (_topic(namespace, signal.value), self._partition)
        except PenstockError as error:
            raise Refusal(Cause.INVALID, str(error)) from None
        return self._using(key)

    @contextlib.asynccontextmanager
    async def _using(self, key: Key) -> AsyncIterator[Store]:
        store = self._residents.get(key)
        while store is None or self._opener.has_stopped(store):
            self._check_number(key)
            await self._open_once(key)
            store = self._residents.get(key)  # it may have had to go for another one meanwhile
        # Invariant: nothing was awaited since it was found to be open, and who is used stays open.
        self._residents.begin_use(key)
        try:
            yield store
        finally:
            self._residents.end_use(key, self._loop.time())

    def _check_number(self, key: Key) -> None:
        """Anyone who may choose a namespace may make topics; each costs files."""
        known, most = self._known(), self._config.limits.topics
        if key not in known and len(known) >= most:
            raise Refusal(Cause.BUSY, f"there are {most} topics already", retry_after_s=60.0)

    def _known(self) -> set[Key]:
        return self._residents.known.union(self._opening, self._closing, self._missing)

    def all(self) -> list[Store]:
        """Those that are open."""
        return [store for _, store in self._residents.items()]

    def described(self) -> list[dict[str, Any]]:
        """Every topic: as it is, or as it was when its store was closed."""
        open_ones = [describe(*key, store) for key, store in self._residents.items()]
        asleep = [found for _, found in self._residents.asleep() if found is not None]
        return open_ones + [each.description for each in asleep]

    def find(self, topic: Topic, partition: int) -> Store | None:
        """The one of a partition; None where it is not open here."""
        return self._residents.get((topic, partition))

    @contextlib.contextmanager
    def held(self, topic: Topic, partition: int) -> Iterator[Store | None]:
        """For other threads than the loop's: the store, open for so long; None: there is none."""
        key, stack = (topic, partition), contextlib.AsyncExitStack()
        entering = asyncio.run_coroutine_threadsafe(self._enter(stack, key), self._loop)
        try:
            yield entering.result()
        except Refusal as refusal:
            raise StoreFull(refusal.message) from None
        finally:
            asyncio.run_coroutine_threadsafe(stack.aclose(), self._loop)

    async def _enter(self, stack: contextlib.AsyncExitStack, key: Key) -> Store | None:
        if key not in self._known():
            return None
        return await stack.enter_async_context(self._using(key))

    async def close(self) -> None:
        """Seals and closes all of them."""
        self._closed = True
        for task in [*self._opening.values(), *self._closing.values()]:
            await asyncio.wait([task])
        if self._opener.archiver is not None:
            await self._opener.archiver.close()
        stores = [self._residents.take(key) for key, _ in self._residents.items()]
        await asyncio.gather(*(store.close_async() for store in stores))

    async def _open_once(self, key: Key) -> Store:
        if self._closed:
            raise Refusal(Cause.UNAVAILABLE, "the server is stopping", retry_after_s=5.0)
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.create_task(self._open_store(key))
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        return await asyncio.shield(task)

    async def _open_store(self, key: Key) -> Store:
        if key in self._closing:
            await asyncio.wait([self._closing[key]])
        stopped = self._residents.get(key)
        if stopped is None:
            await self._make_way()
        try:
            if stopped is not None:
                _LOG.warning("%s is opened again", stopped.name)
                await self._opener.close(self._residents.take(key))
            store = await self._opener.open(key, self._make_room)
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
        self._residents.add(key, store, self._loop.time())
        return store

    async def _make_way(self) -> None:
        """Returns when one more may be open; Refusal where nobody can go."""
        while len(self.all()) + len(self._opening) + len(self._closing) > self._residents.most:
            unused = self._residents.unused()
            key = next((key for key, store in unused if self._may_sleep(store)), None)
            if key is not None:
                await self._put_to_sleep(key)
            elif self._closing:
                await asyncio.wait(self._closing.values(), return_when=asyncio.FIRST_COMPLETED)
            else:
                text = f"{self._residents.most} topics are in use, which is as many as can be"
                raise Refusal(Cause.BUSY, text, retry_after_s=_ROOM_S)

    def _may_sleep(self, store: Store) -> bool:
        """Not where its segments may have to go for others, or for their age."""
        return self._segments_stay or not store.segments

    async def _put_to_sleep(self, key: Key) -> None:
        """Closes it. Who wants it meanwhile waits until it is closed, and opens it again."""
        store = self._residents.take(key)
        self._residents.note_asleep(key, _asleep(key, store, None))  # shown meanwhile as it was
        closing = self._closing[key] = asyncio.create_task(self._close_and_note(key, store))
        closing.add_done_callback(lambda _: self._closing.pop(key, None))
        await asyncio.shield(closing)

    async def _close_and_note(self, key: Key, store: Store) -> None:
        try:
            told = await asyncio.to_thread(self._opener.tell, store)
            await self._opener.close(store)
            self._residents.note_asleep(key, _asleep(key, store, told))
        except (PenstockError, OSError) as error:
            self._note_missing(key, error)

    def _note_missing(self, key: Key, error: Exception) -> None:
        """It is tried again, and its problem shown; new topics are left to their clients.

        Not where it is the archive that keeps them from being opened: that is for people to see.
        """
        topic, number = key
        self._residents.forget(key)
        waits = isinstance(error, (ObjectsUnavailable, MetadataUnavailable))
        if waits or self._opener.directory.partition(topic, number).folder.is_dir():
            if self._missing.get(key) != str(error):
                _LOG.error("%s/%d cannot be opened: %s", topic, number, error)
            self._missing[key] = str(error)

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


def _asleep(key: Key, store: Store, told: Taken | None) -> Asleep:
    return Asleep(store.name, len(store.segments), told, describe(*key, store))


async def _until_fewer(store: Store, segments: int) -> None:
    """Waits a little; what is slower than that goes when the store is opened again."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GONE_S):
            while len(store.segments) >= segments:
                await asyncio.sleep(0.02)
