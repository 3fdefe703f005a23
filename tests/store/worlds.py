"""A store on a disk that fails and loses power, with all its jobs and its time in one hand.

`World` does what the owner of a store and its subscribers do, one step after the other, and notes
what each of them may rely on from then on. Whatever is interrupted, `drain` says whether it held.
"""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from penstock.log import Environment
from penstock.log.environment import MemoryBound
from penstock.metrics import Metrics
from penstock.model.errors import DiskFull, LogUnavailable, PenstockError
from penstock.model.settings import (
    KIB,
    Durability,
    LogSettings,
    SegmentSettings,
    SizePolicy,
    StoreSettings,
)
from penstock.store import Store
from tests.simulation.crash_store import digests_of, make_item
from tests.simulation.faults import FaultyFiles
from tests.simulation.manual_pool import ManualClock, ManualPool
from tests.simulation.power_loss import PowerLossFiles, PowerLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.log import Commit
    from penstock.store import Delivery, Subscription
    from penstock.store.store import Start

FOLDER = Path("/stores/one")
SMALL = StoreSettings(
    log=LogSettings(rotate_bytes=64 * KIB, cache_bytes=0, retention_bytes=0),
    segment=SegmentSettings(target_bytes=64 * KIB),
    ack_log_bytes=64 * KIB,
    claim_s=None,
)
"""Much happens to files; a claim ends with its holder alone."""
Place = tuple[int, int]
"""A bundle: segment_seq and index."""


class Workers(ManualPool):
    """Queues jobs, or runs them at once where the store waits for them.

    As in the pool of a process, one job that fails keeps no other from its turn.
    """

    at_once = False

    def submit(self, job: Callable[[], None]) -> None:
        """Queues or runs the job."""
        if self.at_once:
            _run(job)
        else:
            super().submit(lambda: _run(job))

    def call_later(self, delay_s: float, job: Callable[[], None]) -> None:
        """Queues the job for when the clock has come that far."""
        super().call_later(delay_s, lambda: _run(job))

    def run_one(self) -> None:
        """Runs the oldest job alone."""
        if self._jobs:
            self._jobs.popleft()()


def _run(job: Callable[[], None]) -> None:
    with contextlib.suppress(OSError, PenstockError):
        job()


@dataclass
class Reader:
    """A subscriber, and what it may rely on."""

    passed: set[int]
    """Offsets that were gone when it was registered, or that it did not want."""
    answered: set[Place] = field(default_factory=set)
    """Acked or rejected: need not come again."""
    sure: set[Place] = field(default_factory=set)
    """Those whose answers survive whatever may happen: must not come again."""
    in_this_life: set[Place] = field(default_factory=set)
    """Answered, or in somebody's hands, in this process: must not come."""
    active: bool = True


class World:
    """One store, the disk under it, and the model of what it has promised."""

    def __init__(self, settings: StoreSettings = SMALL) -> None:
        self.settings = settings
        self.clock = ManualClock()
        self.disk = PowerLossFiles()
        self.items = 0
        self.appends: list[tuple[Commit, int, str]] = []
        self.answers: list[tuple[Commit, str, Place]] = []
        self.held: list[tuple[str, Delivery]] = []
        self.attempted: dict[int, set[str]] = defaultdict(set)
        """Every digest that an offset may have."""
        self.acknowledged: dict[int, str] = {}
        self.safe: dict[int, str] = {}
        """What survives a power loss; with `sync` everything acknowledged."""
        self.delivered: dict[int, tuple[Place, str]] = {}
        self.bundles: dict[Place, tuple[int, int]] = {}
        self.readers: dict[str, Reader] = {}
        self.unsure: dict[str, Reader] = {}
        """Whose registration, or its end, was interrupted."""
        self.lost: set[int] = set()
        """Never acknowledged, torn by a power loss, and named by the log."""
        self.torn = False
        """A power loss has torn events that nobody had been told of."""
        self.lost_power = False

    # --- lives ---------------------------------------------------------------------------------

    def open(self, files: FaultyFiles | None = None) -> None:
        """Opens the store and compares it with what is known."""
        self.files = files or FaultyFiles(self.disk)
        self.pool, self.workers = Workers(self.clock), Workers(self.clock)
        self.appends, self.answers, self.held = [], [], []
        self.subscriptions: dict[str, Subscription] = {}
        for reader in [*self.readers.values(), *self.unsure.values()]:
            reader.in_this_life.clear()
        self.store = Store.open(
            FOLDER,
            self.settings,
            env=Environment(
                files=self.files,
                clock=self.clock,
                pool=self.pool,
                workers=self.workers,
                upkeep=self.workers,
                metrics=Metrics(),
                memory=MemoryBound(),
                jitter=random.Random(0),
            ),
        )
        self.check()

    def check(self) -> None:
        """Registrations are as they were, offsets go on, and nothing acknowledged is a problem."""
        names = {each.name for each in self.store.subscribers()}
        assert self.readers.keys() <= names
        assert names <= self.readers.keys() | self.unsure.keys()
        self.readers |= {name: self.unsure[name] for name in names if name in self.unsure}
        self.unsure.clear()
        assert self.store.log.end_offset > max([*self.acknowledged, *self.delivered], default=-1)
        problems = {problem.file for problem in self.store.problems}
        assert all(file == "ack.log" or file.startswith("log/") for file in problems)
        lost = {at for gap in self.store.log.lost for at in range(gap.first_offset, gap.end_offset)}
        assert not lost & self.acknowledged.keys()
        self.torn = self.torn or "ack.log" in problems
        if not self.lost_power:
            assert "ack.log" not in problems
            assert lost <= self.lost
        self.lost |= lost
        self.lost_power = False

    def kill(self) -> None:
        """The process dies; the system goes on."""
        self.settle()
        self.disk = self.disk.kill()

    def lose_power(self, seed: int) -> None:
        """Any part of what was not synced is gone."""
        self.settle()
        self.lost_power = True
        self.disk = self.disk.lose_power(Random(seed))
        self.acknowledged = dict(self.safe)
        if self.settings.log.durability is not Durability.SYNC:
            for reader in self.readers.values():
                reader.sure.clear()

    def reopen(self, seed: int = 0) -> None:
        """Opens the store, as often as the power is lost meanwhile."""
        while True:
            try:
                self.open()
                return
            except PowerLost:
                self.lose_power(seed)

    def close(self) -> None:
        """Closes the store; what it waits for happens meanwhile."""
        self.let_go()
        self.run()
        with self.workers_at_once():
            self.store.close()
        self.settle()

    # --- time and jobs -------------------------------------------------------------------------

    def run(self) -> None:
        """Runs every job that is due, and those that they bring."""
        for _ in range(3):  # jobs of one pool bring jobs of the other
            self.pool.run()
            self.workers.run()
        self.settle()

    def run_one(self, *, of_workers: bool) -> None:
        """Runs a single job."""
        (self.workers if of_workers else self.pool).run_one()
        self.settle()

    def pass_time(self, seconds: float) -> None:
        """Time passes, and what is due runs."""
        self.clock.advance(seconds)
        self.run()

    @contextlib.contextmanager
    def workers_at_once(self) -> Iterator[None]:
        """Where a call waits for its jobs, they run as soon as they are asked for."""
        self.workers.at_once = True
        try:
            yield
        finally:
            self.workers.at_once = False

    # --- appending -----------------------------------------------------------------------------

    def append(self, *, raw: bool = True, size: int = 100, wait: bool = True) -> None:
        """Appends one item."""
        self.items += 1
        item, digest = make_item(Random(self.items), raw=raw, size=size)
        append = self.store.append(item, block=False)
        assert append.offset not in self.acknowledged
        assert append.offset not in self.delivered
        self.attempted[append.offset].add(digest)
        self.appends.append((append.durable, append.offset, digest))
        if wait:
            append.durable.settle()
        self.settle()

    def flush(self) -> None:
        """Everything before is sealed after, unless the store cannot."""
        for _ in range(8):
            self.run()
            with self.workers_at_once(), contextlib.suppress(TimeoutError):
                self.store.flush(timeout=0)
                break
            self.pass_time(1.0)  # a seal that failed is tried again
        else:
            raise TimeoutError
        self.settle()
        self.safe = dict(self.acknowledged)

    # --- receiving -----------------------------------------------------------------------------

    def register(self, name: str, start: Start = "earliest") -> None:
        """Registers a subscriber; interrupted, it may or may not be one."""
        reader = Reader(self._passed(start))
        if name not in self.readers:
            self.unsure[name] = reader
        self.store.register(name, start)
        self.readers.setdefault(name, reader)
        self.unsure.pop(name, None)

    def unregister(self, name: str) -> None:
        """Forgets a subscriber; interrupted, it may still be one."""
        self.unsure[name] = self.readers.pop(name)
        self.held = [(of, delivery) for of, delivery in self.held if of != name]
        self.store.unregister(name)
        del self.unsure[name]
        self.subscriptions.pop(name, None)

    def receive(self, name: str) -> bool:
        """Takes the next bundle, if there is one, and holds it."""
        if name not in self.subscriptions:
            self.subscriptions[name] = self.store.subscribe(name)
        delivery = self.subscriptions[name].next_bundle(timeout=0)
        if delivery is None:
            return False
        place = (delivery.segment_seq, delivery.bundle_index)
        reader = self.readers[name]
        assert place not in reader.sure, f"{name} had {place} durably"
        assert place not in reader.in_this_life, f"{name} has {place}"
        reader.in_this_life.add(place)
        self._note(place, delivery)
        self.held.append((name, delivery))
        return True

    def answer(self, kind: str, *, which: int = 0, wait: bool = True) -> None:
        """Acks, rejects, nacks or lets go one of the bundles that are held."""
        name, delivery = self.held.pop(which % len(self.held))
        place = (delivery.segment_seq, delivery.bundle_index)
        reader = self.readers[name]
        if kind in ("nack", "let go"):
            reader.in_this_life.discard(place)
            if kind == "nack":
                delivery.nack(1.0)
            return
        reader.answered.add(place)
        commit = delivery.ack() if kind == "ack" else delivery.reject()
        self.answers.append((commit, name, place))
        if wait:
            commit.settle()
        self.settle()

    def let_go(self) -> None:
        """Drops every bundle that is held; they come again."""
        while self.held:
            self.answer("let go")

    # --- what it comes to ----------------------------------------------------------------------

    def settle(self) -> None:
        """Notes what became of appends and answers that waited."""
        for append in [item for item in self.appends if item[0].done]:
            self.appends.remove(append)
            durable, offset, digest = append
            try:
                durable.wait()
                self.acknowledged[offset] = digest
            except DiskFull:
                self.attempted[offset].discard(digest)
            except LogUnavailable:
                continue
        for answer in [item for item in self.answers if item[0].done]:
            self.answers.remove(answer)
            commit, name, place = answer
            try:
                commit.wait()
            except (DiskFull, LogUnavailable):
                continue
            if name in self.readers:
                self.readers[name].sure.add(place)
        if self.settings.log.durability is Durability.SYNC:
            self.safe = dict(self.acknowledged)

    def drain(self) -> None:
        """Everybody receives and acks what is left; then everything acknowledged was answered."""
        self.let_go()
        self.flush()
        for name in list(self.readers):
            self.store.activate(name)
            for _ in range(3):
                while self.receive(name):
                    self.answer("ack", wait=False)
                self.pass_time(61.0)  # what was nacked is due
            self._check_received(name)
        self.pass_time(1.0)
        self.store._journal.flush()  # raises where answers could not be kept
        if self.readers:
            assert self.store.segments == (), "what everybody has is still there"

    def _check_received(self, name: str) -> None:
        """The subscriber answered everything acknowledged, or it was dropped and counted."""
        reader = self.readers[name]
        have = {at for place in reader.answered for at in self._offsets(place)}
        missing = self.acknowledged.keys() - reader.passed - have
        if self.settings.size_policy is SizePolicy.BACKPRESSURE:
            assert not missing, f"{name} never gets {sorted(missing)}"
            return
        if not self.torn:
            self.check_counts(name, len(missing))

    def check_counts(self, name: str, missing: int = 0) -> None:
        """Of bundles with one message each, every single one was counted."""
        [status] = [each for each in self.store.subscribers() if each.name == name]
        settled = status.acked + status.rejected + status.dropped
        assert settled == self.store.log.end_offset - len(self.lost)
        assert missing <= status.dropped
        assert status.lost == 0

    def _note(self, place: Place, delivery: Delivery) -> None:
        """A bundle has the messages that were appended, and they are in no other."""
        digests = list(digests_of(delivery.bundle))
        span = (delivery.first_offset, delivery.messages)
        assert self.bundles.setdefault(place, span) == span
        assert len(digests) == delivery.messages
        for offset, digest in enumerate(digests, delivery.first_offset):
            assert digest in self.attempted[offset]
            assert digest == self.acknowledged.get(offset, digest)
            known = self.delivered.setdefault(offset, (place, digest))
            assert known == (place, digest), f"offset {offset} was {known}"
            self.safe[offset] = self.acknowledged[offset] = digest

    def _offsets(self, place: Place) -> range:
        first, count = self.bundles[place]
        return range(first, first + count)

    def _passed(self, start: Start) -> set[int]:
        """Which of the offsets so far a new subscriber does not get."""
        kept: set[int] = set()
        if start == "earliest":
            for info in self.store.segments:
                kept |= set(range(info.first_offset, info.end_offset))
        return set(range(self._sealed_through())) - kept

    def _sealed_through(self) -> int:
        return max(self.store._journal.state.sealed_offset, self.store._filling.sealed_through)
