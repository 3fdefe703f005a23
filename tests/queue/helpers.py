"""Queues that tests can make quickly, and time that passes when they say so."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.metrics import Metrics
from penstock.queue import (
    AsyncConsumer,
    AsyncProducer,
    ConsumedBatch,
    ConsumerSettings,
    GarbageCollector,
    GarbageSettings,
    ProducerSettings,
)
from penstock.queue.keys import batch_id_of

if TYPE_CHECKING:
    from penstock.storage.objects import ObjectStore
    from tests.queue.plain_objects import PlainObjects

Result = TypeVar("Result")
START_MS = 1_750_000_000_000
MANIFEST = "ingest/manifest"
_QUIET_TURNS = 20


class Time:
    """A clock and a `sleep` of which a test decides how they go; `wall_s` may jump apart."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.wall_s = START_MS / 1000
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._numbers = itertools.count()

    def wall_ns(self) -> int:
        """What the wall clock says."""
        return round((self.wall_s + self.now_s) * 1e6) * 1000

    def monotonic(self) -> float:
        """What the other one says."""
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Until the test has let so much time pass."""
        woken = asyncio.Event()
        heapq.heappush(self._sleepers, (self.now_s + seconds, next(self._numbers), woken))
        await woken.wait()

    async def passes(self, seconds: float) -> None:
        """Lets time pass, from one sleeper's end to the next."""
        end = self.now_s + seconds
        await quiet()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.now_s, _, woken = heapq.heappop(self._sleepers)
            woken.set()
            await quiet()
        self.now_s = end

    async def until(self, work: Awaitable[Result], patience_s: float = 1000.0) -> Result:
        """Lets as much time pass as the work needs."""
        task = asyncio.ensure_future(work)
        end = self.now_s + patience_s
        while not task.done():
            assert self.now_s < end, "it never ends"
            await quiet()
            if not task.done() and self._sleepers:
                await self.passes(max(0.0, self._sleepers[0][0] - self.now_s))
            elif not task.done():
                await asyncio.sleep(0.001)  # a thread is at work
                end -= 0.1
        return await task


async def quiet() -> None:
    """Lets every task go on as far as it can."""
    for _ in range(_QUIET_TURNS):
        await asyncio.sleep(0)


class Queue:
    """The parts of one queue in one store, with one time for all."""

    def __init__(self, objects: ObjectStore, *, seed: int = 0, version: int = 2) -> None:
        self.objects = objects
        self.time = Time()
        self.random = random.Random(seed)
        self.metrics = Metrics()
        self.version = version

    @property
    def _parts(self) -> dict[str, Any]:
        randomness = random.Random(self.random.getrandbits(64))
        time = self.time
        return {
            "clock": time,
            "sleep": time.sleep,
            "randomness": randomness,
            "metrics": self.metrics,
        }

    async def producer(
        self, objects: ObjectStore | None = None, clock: Any = None, **settings: Any
    ) -> AsyncProducer:
        """A producer whose batches fill for 0.1 s unless told otherwise."""
        chosen = ProducerSettings(manifest_version=self.version, **settings)
        parts = self._parts | ({"clock": clock} if clock else {})
        opening = AsyncProducer.open(objects or self.objects, chosen, **parts)
        return await self.time.until(opening)

    async def consumer(
        self,
        last_acked: int | None = None,
        *,
        initialize: bool = True,
        objects: ObjectStore | None = None,
        **settings: Any,
    ) -> AsyncConsumer:
        """A consumer that has claimed the queue; without a garbage collector."""
        chosen = {"gc_interval_s": None, "manifest_version": self.version} | settings
        chosen = {"retry_s": 0.0, **chosen}  # each test decides itself what is tried again
        parts = self._parts
        consumer = await self.time.until(
            AsyncConsumer.open(objects or self.objects, ConsumerSettings(**chosen), **parts)
        )
        if initialize:
            await self.time.until(consumer.initialize(last_acked))
        return consumer

    def collector(self, grace_s: float = 600.0, clock: Any = None) -> GarbageCollector:
        """A garbage collector."""
        settings = GarbageSettings(
            gc_grace_period_s=grace_s, manifest_version=self.version, retry_s=0.0
        )
        parts = self._parts | ({"clock": clock} if clock else {})
        return GarbageCollector(self.objects, settings, **parts)

    async def produced(self, producer: AsyncProducer, *entries: bytes) -> list[int | None]:
        """Makes a batch of each entry, one after the other; their sequences."""
        sequences = []
        for entry in entries:
            handle = await producer.produce([entry], b"about " + entry[:20])
            await self.time.until(producer.flush())
            assert handle.watcher.result()
            sequences.append(handle.watcher.sequence)
        return sequences


async def everything(consumer: AsyncConsumer) -> list[ConsumedBatch]:
    """What there is, up to the end."""
    found: list[ConsumedBatch] = []
    while (batch := await consumer.next_batch()) is not None:
        found.append(batch)
    return found


def entries_of(batches: list[ConsumedBatch]) -> list[bytes]:
    """The entries of all of them."""
    return [entry for batch in batches for entry in batch.entries]


def held(
    work: Callable[..., Awaitable[Any]],
) -> tuple[Callable[..., Awaitable[Any]], asyncio.Event]:
    """The call, which waits for the event before it is made."""
    gate = asyncio.Event()

    async def waits(*arguments: Any, **named: Any) -> Any:
        await gate.wait()
        return await work(*arguments, **named)

    return waits, gate


def batch_keys(plain: PlainObjects) -> list[str]:
    """The keys of the batches, oldest first."""
    return sorted(key for key in plain.objects if batch_id_of(key))
