"""Producers, consumers and the garbage collector together, over a store that goes wrong.

Whatever happens: what was acknowledged is consumed, once, and in order, by a caller that stores the
sequence with its data.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock.model.errors import (
    Fenced,
    ObjectConflict,
    ObjectsUnavailable,
    OutcomeUnknown,
    PenstockError,
    QueueUnreachable,
)
from tests.queue.helpers import Queue, Time
from tests.queue.plain_objects import PlainObjects
from tests.simulation.objects import Fault, FaultyObjects, RandomFaults

if TYPE_CHECKING:
    from penstock.queue import AsyncConsumer, AsyncProducer, WriteHandle

Result = TypeVar("Result")
PRODUCERS = 3
SMALL = {"flush_interval_s": 0.1, "max_uploads": 2, "retry_s": 5.0}
producer_numbers = st.integers(0, PRODUCERS - 1)


class SkewedClock:
    """The time of a machine whose wall clock is wrong."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.skew_s = 0.0

    def wall_ns(self) -> int:
        """Wrong by the skew."""
        return max(0, self._time.wall_ns() + int(self.skew_s * 1e9))

    def monotonic(self) -> float:
        """Right."""
        return self._time.monotonic()


class Slow:
    """A store as one machine sees it, over a line that holds requests back.

    While `held`, what it writes to the manifest waits. While `late`, each write seems to fail and
    is carried out some time later.
    """

    def __init__(self, inner: FaultyObjects, time: Time, random: Random) -> None:
        self._inner = inner
        self._time = time
        self._random = random
        self._under_way: set[asyncio.Task[None]] = set()
        self.held = False
        self.late = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, key: str, data: Any) -> Any:
        """Perhaps later."""
        return await self._now_or_later(self._inner.put, key, data)

    async def create(self, key: str, data: Any) -> Any:
        """Perhaps later."""
        return await self._now_or_later(self._inner.create, key, data)

    async def replace(self, key: str, data: Any, expected: Any) -> Any:
        """Perhaps later, perhaps held."""
        while self.held:
            await asyncio.sleep(0)
        return await self._now_or_later(self._inner.replace, key, data, expected)

    async def _now_or_later(self, work: Any, *arguments: Any) -> Any:
        if not self.late or self._random.random() < 0.3:
            return await work(*arguments)
        task = asyncio.ensure_future(self._later(work, *arguments))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        raise ObjectsUnavailable("no answer in time")

    async def _later(self, work: Any, *arguments: Any) -> None:
        await self._time.sleep(self._random.choice([0.01, 0.2, 3.0, 20.0]))
        with contextlib.suppress(ObjectConflict, ObjectsUnavailable):
            await work(*arguments)


@dataclass
class Database:
    """What the consumer's caller stores: data and sequence in one transaction."""

    last: int | None = None
    entries: list[bytes] = field(default_factory=list)

    def store(self, sequence: int, entries: list[bytes]) -> None:
        """Refuses what it has, as a database with the sequence in it can."""
        expected = 0 if self.last is None else self.last + 1
        assert sequence == expected, f"{sequence} came where {expected} should"
        self.entries += entries
        self.last = sequence


class QueueMachine(RuleBasedStateMachine):
    """The rules are what can happen; `teardown` says what must be true in the end."""

    version = 2
    most_skew_s = 5000.0

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.numbers = itertools.count()
        self.handles: dict[bytes, WriteHandle] = {}
        self.database = Database()
        self.fenced: list[AsyncConsumer] = []
        self.producers: list[AsyncProducer] = []

    @initialize(seed=st.integers(0, 2**32), rate=st.sampled_from([0.0, 0.03, 0.1]))
    def open(self, seed: int, rate: float) -> None:
        """One store with faults, three producers, one consumer."""
        self.faults = RandomFaults(Random(seed), dict.fromkeys(Fault, rate))
        self.faults.active = False
        self.plain = PlainObjects()
        self.queue = Queue(FaultyObjects(self.plain, self.faults), seed=seed, version=self.version)
        lines = [Random(seed + number) for number in range(PRODUCERS)]
        self.stores = [Slow(self.queue.objects, self.queue.time, line) for line in lines]
        self.clocks = [SkewedClock(self.queue.time) for _ in range(PRODUCERS)]
        self.collector_clock = SkewedClock(self.queue.time)
        for number in range(PRODUCERS):
            self.producers.append(self._run(self._open_producer(number)))
        self.consumer = self._run(self.queue.consumer(acks_per_dequeue=3, read_ahead_batches=2))
        self.collector = self.queue.collector(grace_s=10.0, clock=self.collector_clock)
        self.faults.active = True

    # --- what can happen -----------------------------------------------------------------------

    @rule(number=producer_numbers, count=st.integers(1, 3))
    def produce(self, number: int, count: int) -> None:
        """A call with some entries; a producer that has stopped is replaced."""
        names = [b"%d:%d" % (number, next(self.numbers)) for _ in range(count)]
        try:
            handle = self._run(self.producers[number].produce(names, names[0]))
        except PenstockError:
            self.kill(number)
        else:
            self.handles |= dict.fromkeys(names, handle)

    @rule(seconds=st.sampled_from([0.02, 0.15, 1.0, 8.0]))
    def wait(self, seconds: float) -> None:
        """Time for batches to be stored and enqueued."""
        self._run(self.queue.time.passes(seconds))

    @rule(count=st.integers(1, 4), ack=st.booleans())
    def consume(self, count: int, ack: bool) -> None:
        """The caller stores what it gets, then acknowledges, if it lives so long."""
        with contextlib.suppress(ObjectsUnavailable):
            for _ in range(count):
                batch = self._run(self.consumer.next_batch())
                if batch is None:
                    break
                self.database.store(batch.sequence, batch.entries)
                if ack:
                    self._run(self._ack_stored())

    @rule()
    def replace_the_consumer(self) -> None:
        """A successor begins behind what is stored."""
        self.fenced.append(self.consumer)
        self.consumer = self._run(self._open_consumer())

    @precondition(lambda self: self.fenced)
    @rule(data=st.data())
    def fenced_consumer_tries(self, data: st.DataObject) -> None:
        """It gets nothing, whatever it tries."""
        old = data.draw(st.sampled_from(self.fenced), label="consumer")
        sequence = 0 if old.acked is None else old.acked + 1
        works = {"next": old.next_batch, "ack": lambda: old.ack(sequence), "flush": old.flush}
        work = works[data.draw(st.sampled_from(sorted(works)), label="verb")]
        with pytest.raises((Fenced, ObjectsUnavailable)):
            self._run(work())

    @rule(number=producer_numbers)
    def kill(self, number: int) -> None:
        """A producer dies with what it has not stored; another takes its place."""
        self._run(self.producers[number].abandon())
        self.producers[number] = self._run(self._open_producer(number))

    @rule(number=producer_numbers)
    def stall(self, number: int) -> None:
        """What a producer writes to the manifest takes its time, or comes through at last."""
        self.stores[number].held = not self.stores[number].held

    @rule(number=producer_numbers)
    def delay(self, number: int) -> None:
        """A producer's requests arrive long after it gave up waiting, or in time again."""
        self.stores[number].late = not self.stores[number].late

    @rule(data=st.data())
    def clock_jumps(self, data: st.DataObject) -> None:
        """A machine's wall clock is set."""
        clock = data.draw(st.sampled_from([*self.clocks, self.collector_clock]), label="clock")
        bound = self.most_skew_s
        clock.skew_s = data.draw(st.floats(-bound, bound), label="skew")

    @rule()
    def collect(self) -> None:
        """Garbage is collected while the others go on."""
        with contextlib.suppress(ObjectsUnavailable):
            self._run(self.collector.collect())

    # --- what must be true ---------------------------------------------------------------------

    def teardown(self) -> None:
        """The store answers again, everything is flushed and consumed."""
        if self.producers:
            self.faults.active = False
            for store in self.stores:
                store.held = store.late = False
            self._run(self.queue.time.passes(30.0))
            self._run(self._finish())
            self._check()
        self.runner.close()

    async def _finish(self) -> None:
        for producer in self.producers:
            await producer.close()
        self.fenced.append(self.consumer)
        self.consumer = await self._open_consumer()
        while (batch := await self.consumer.next_batch()) is not None:
            self.database.store(batch.sequence, batch.entries)
        await self._ack_stored()
        await self.consumer.flush()
        for consumer in [self.consumer, *self.fenced]:
            await consumer.close(flush=False)

    def _check(self) -> None:
        stored = self.database.entries
        assert len(stored) == len(set(stored)), "an entry was consumed twice"
        assert set(stored) <= set(self.handles)
        for name, handle in self.handles.items():
            outcome = self._outcome(handle)
            if outcome is None:
                assert name in stored, f"{name!r} was acknowledged and is lost"
            elif isinstance(outcome, QueueUnreachable):
                assert name not in stored, f"{name!r} was said not to be enqueued"
        for number in range(PRODUCERS):
            mine = [name for name in stored if name.startswith(b"%d:" % number)]
            assert mine == sorted(mine, key=lambda name: int(name.split(b":")[1]))

    @staticmethod
    def _outcome(handle: WriteHandle) -> Exception | None:
        try:
            assert handle.watcher.result(), "a handle was never decided"
        except (QueueUnreachable, OutcomeUnknown) as error:
            return error
        return None

    # --- small parts ---------------------------------------------------------------------------

    def _run(self, work: Awaitable[Result]) -> Result:
        async def timed() -> Result:
            return await self.queue.time.until(work)

        return self.runner.run(timed())

    async def _open_producer(self, number: int) -> AsyncProducer:
        self.stores[number].held = self.stores[number].late = False
        parts = {"objects": self.stores[number], "clock": self.clocks[number]}
        chunk = {"tail_bytes": 200 + 150 * number}
        opening: Any = lambda: self.queue.producer(**parts, **SMALL, **chunk)  # noqa: E731
        return await _as_often_as_it_takes(opening)

    async def _open_consumer(self) -> AsyncConsumer:
        opening: Any = lambda: self.queue.consumer(  # noqa: E731
            self.database.last, acks_per_dequeue=3, read_ahead_batches=2
        )
        return await _as_often_as_it_takes(opening)

    async def _ack_stored(self) -> None:
        acked = -1 if self.consumer.acked is None else self.consumer.acked
        stored = -1 if self.database.last is None else self.database.last
        for sequence in range(acked + 1, stored + 1):
            await self.consumer.ack(sequence)


async def _as_often_as_it_takes(work: Any) -> Any:
    while True:
        try:
            return await work()
        except ObjectsUnavailable:
            continue


class FirstVersionMachine(QueueMachine):
    """The same with manifests and batches of version 1, whose collector needs sane clocks."""

    version = 1
    most_skew_s = 1.0


_SHORT = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
_LONG = settings(_SHORT, max_examples=2000, stateful_step_count=60)

TestQueue = QueueMachine.TestCase
TestQueue.settings = _SHORT
TestFirstVersion = FirstVersionMachine.TestCase
TestFirstVersion.settings = _SHORT


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestQueueForLong(QueueMachine.TestCase):
    """Thousands of histories."""

    settings = _LONG
