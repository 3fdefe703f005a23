"""Whatever is cut short, and wherever: what the store promised before it keeps after."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from penstock.model.errors import LogUnavailable, Retryable, StoreFull, StoreUnavailable
from penstock.model.settings import KIB, Durability, SizePolicy
from tests.simulation.faults import FaultyFiles
from tests.simulation.machines import run_machine
from tests.simulation.power_loss import PowerLost
from tests.store.worlds import SMALL, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.model.settings import StoreSettings

INTERVAL = replace(SMALL, log=replace(SMALL.log, durability=Durability.INTERVAL))
DROP_OLDEST = replace(SMALL, budget_bytes=256 * KIB, size_policy=SizePolicy.DROP_OLDEST)
NAMES = st.sampled_from(["left", "right", "third"])
SIZES = st.sampled_from([0, 1, 300, 3000, 20_000, 70_000])
SEEDS = st.integers(0, 2**32)


@pytest.fixture(autouse=True)
def _nobody_waits_for_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one thread: it commits what it waits for, and nothing happens while it sleeps."""
    monkeypatch.setattr("penstock.store.ack_log._GATHER_S", 0.0)
    monkeypatch.setattr("penstock.store.store.CLOSE_S", 0.0)


# --- a fixed story, cut everywhere ---------------------------------------------------------------


def from_append_to_deletion(world: World) -> None:
    """A store's whole life: two subscribers, two segments that go, one that stays, and the end."""
    world.open()
    world.register("left")
    world.register("right")
    for number in range(4):
        world.append(raw=number % 2 == 0, size=70_000 if number == 1 else 1000)
    world.flush()
    for name in ("left", "right"):
        world.append(wait=False)
        while world.receive(name):
            world.answer("reject" if name == "right" else "ack")
    world.run()  # the first segment goes
    world.append(size=1000)
    world.flush()
    world.receive("left")
    world.answer("nack")
    world.receive("right")
    world.answer("ack", wait=False)
    world.register("late")
    world.unregister("late")
    world.close()
    world.open()
    world.append()
    world.drain()
    world.append()
    world.close()


def cut_the_story(settings: StoreSettings, after: int, seed: int | None) -> None:
    """Loses power, or without a seed the process alone, after some operations of the story."""
    world = World(settings)
    world.disk.cut_after(after)
    with pytest.raises(PowerLost):
        from_append_to_deletion(world)
    if seed is None:
        world.kill()
    else:
        world.lose_power(seed)
    world.reopen()
    world.drain()
    world.close()


def cut_everywhere(settings: StoreSettings, seed: int | None) -> None:
    """The story as often as it has operations."""
    world = World(settings)
    from_append_to_deletion(world)
    for after in range(world.disk.steps):
        cut_the_story(settings, after, seed)


@pytest.mark.parametrize(
    ("settings", "seed"), [(SMALL, 2), (INTERVAL, 1)], ids=["sync", "interval"]
)
def test_power_may_be_lost_after_any_operation_on_a_file(
    settings: StoreSettings, seed: int
) -> None:
    """After each one: nothing is lost, nothing answered comes again, no subscriber is forgotten."""
    cut_everywhere(settings, seed)


@pytest.mark.soak
@pytest.mark.parametrize("settings", [SMALL, INTERVAL], ids=["sync", "interval"])
@pytest.mark.parametrize("seed", [None, *range(10)])
def test_power_or_process_may_be_lost_in_many_ways(
    settings: StoreSettings, seed: int | None
) -> None:
    """The same with other parts of what was not synced, and with all of it."""
    cut_everywhere(settings, seed)


def fill_and_drop(world: World) -> int:
    """Goes over the budget; returns how many operations came before the first drop, or a few more.

    The segment that is dropped has gaps, which take more than a sector of events to record.
    """
    world.open()
    world.register("left")
    world.register("right")
    for _ in range(24):
        world.append(raw=False, wait=False)
    world.flush()
    while world.receive("left"):
        pass
    for number in range(12):
        world.answer("ack", which=number)
    while not world.store.subscribers()[0].dropped:
        steps = world.disk.steps
        with contextlib.suppress(StoreFull):
            world.append(raw=False, size=30_000)
        world.flush()
        world.pass_time(1.0)
    return steps


@pytest.mark.parametrize("seed", [1])
def test_power_lost_while_dropping_leaves_no_drop_uncounted(seed: int) -> None:
    """Cut after each operation, the segment is there or each of its bundles has an outcome."""
    whole = World(DROP_OLDEST)
    first = fill_and_drop(whole)
    for after in range(first, whole.disk.steps):
        world = World(DROP_OLDEST)
        world.disk.cut_after(after)
        with pytest.raises(PowerLost):
            fill_and_drop(world)
        world.lose_power(seed)
        world.reopen()
        world.drain()
        world.check_counts("left")
        world.check_counts("right")


# --- any story, cut anywhere ---------------------------------------------------------------------


class PowerLossMachine(RuleBasedStateMachine):
    """One store, used and interrupted in every way."""

    settings = SMALL

    @initialize(names=st.lists(NAMES, unique=True))
    def begin(self, names: list[str]) -> None:
        self.world = World(self.settings)
        self.seed = 0
        self.on_cut: Callable[[], None] = self.lose_power
        self.world.open()
        for name in names:
            self.world.register(name)

    # --- using it ------------------------------------------------------------------------------

    @rule(raw=st.booleans(), size=SIZES, wait=st.booleans())
    def append(self, raw: bool, size: int, wait: bool) -> None:
        self.attempt(lambda: self.world.append(raw=raw, size=size, wait=wait))

    @rule(count=st.integers(2, 6), wait=st.booleans())
    def append_several(self, count: int, wait: bool) -> None:
        for number in range(count):
            self.attempt(lambda number=number: self.world.append(raw=number % 3 > 0, wait=wait))

    @rule()
    def flush(self) -> None:
        self.attempt(self.world.flush)

    @rule()
    def run_jobs(self) -> None:
        self.attempt(self.world.run)

    @rule(of_workers=st.booleans())
    def run_one_job(self, of_workers: bool) -> None:
        self.attempt(lambda: self.world.run_one(of_workers=of_workers))

    @rule(seconds=st.sampled_from([0.01, 1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.attempt(lambda: self.world.pass_time(seconds))

    @rule(name=NAMES, start=st.sampled_from(["earliest", "latest"]))
    def register(self, name: str, start: str) -> None:
        self.attempt(lambda: self.world.register(name, start))

    @precondition(lambda self: self.world.readers)
    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.readers)))
        self.attempt(lambda: self.world.unregister(name))

    @precondition(lambda self: self.world.readers)
    @rule(data=st.data(), count=st.integers(1, 8))
    def receive(self, data: st.DataObject, count: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.readers)))
        for _ in range(count):
            self.attempt(lambda: self.world.receive(name))

    @precondition(lambda self: self.world.held)
    @rule(
        kinds=st.lists(st.sampled_from(["ack", "ack", "reject", "nack", "let go"]), min_size=1),
        which=st.integers(0, 9),
        wait=st.booleans(),
    )
    def answer(self, kinds: list[str], which: int, wait: bool) -> None:
        for kind in kinds:
            if self.world.held:
                self.attempt(lambda kind=kind: self.world.answer(kind, which=which, wait=wait))

    @rule()
    def drain(self) -> None:
        self.attempt(self.world.drain)

    # --- interrupting it -----------------------------------------------------------------------

    @rule()
    def close_and_reopen(self) -> None:
        self.attempt(self.close)

    @rule()
    def kill_and_reopen(self) -> None:
        self.world.kill()
        self.reopen()

    @rule(seed=SEEDS)
    def lose_power_and_reopen(self, seed: int) -> None:
        self.seed = seed
        self.lose_power()
        self.reopen()

    @rule(steps=st.integers(0, 40), seed=SEEDS, kill=st.booleans())
    def soon_be_cut(self, steps: int, seed: int, kill: bool) -> None:
        self.world.disk.cut_after(steps)
        self.seed, self.on_cut = seed, self.world.kill if kill else self.lose_power

    @rule(steps=st.integers(0, 20), seed=SEEDS)
    def lose_power_twice(self, steps: int, seed: int) -> None:
        """The second time, recovery is under way."""
        self.seed = seed
        self.lose_power()
        self.world.disk.cut_after(steps)
        self.reopen()

    @rule(
        operation=st.sampled_from(["sync", "pwrite", "rename", "sync_folder", "remove"]),
        error=st.sampled_from([errno.EIO, errno.ENOSPC]),
        after=st.integers(0, 8),
    )
    def fail_to_reopen(self, operation: str, error: int, after: int) -> None:
        """An error while it is opened leaves the store as good as it was."""
        self.world.kill()
        faulty = FaultyFiles(self.world.disk)
        faulty.fail(operation, error, after=after)
        with contextlib.suppress(OSError, Retryable, LogUnavailable, StoreUnavailable):
            self.world.open(faulty)
        self.world.kill()
        self.reopen()

    @rule(
        operation=st.sampled_from(["sync", "pwrite", "rename", "sync_folder", "remove", "map"]),
        error=st.sampled_from([errno.EIO, errno.ENOSPC]),
        after=st.integers(0, 6),
        partly=st.sampled_from([0, 100, 4000, 69_000]),
    )
    def soon_fail(self, operation: str, error: int, after: int, partly: int) -> None:
        self.world.files.fail(operation, error, after=after, partly=partly)

    def teardown(self) -> None:
        """Whatever happened, in the end everybody has everything."""
        if hasattr(self, "world"):
            self.world.kill()
            self.reopen()
            self.world.drain()

    # --- the parts of the rules ----------------------------------------------------------------

    def attempt(self, action: Callable[[], object]) -> None:
        """Goes on as the owner of a store would, whatever happens."""
        try:
            try:
                action()
            except (Retryable, OSError):
                return
            except (LogUnavailable, StoreUnavailable):
                self.close()
        except PowerLost:
            self.on_cut()
            self.reopen()

    def close(self) -> None:
        with contextlib.suppress(LogUnavailable, Retryable, OSError):  # closed all the same
            self.world.close()
        self.world.kill()
        self.reopen()

    def lose_power(self) -> None:
        self.world.lose_power(self.seed)

    def reopen(self) -> None:
        self.world.reopen(self.seed)


class IntervalMachine(PowerLossMachine):
    """Acknowledged after the write: the process may die, and what is sealed outlives power."""

    settings = INTERVAL


class DropOldestMachine(PowerLossMachine):
    """Little room: what goes before somebody had it is counted, to the bundle."""

    settings = DROP_OLDEST

    @initialize()
    def begin(self) -> None:
        super().begin(["left", "right"])

    @rule(size=SIZES, wait=st.booleans())
    def append(self, size: int, wait: bool) -> None:
        self.attempt(lambda: self.world.append(raw=False, size=size, wait=wait))

    @rule(count=st.integers(2, 6), size=SIZES)
    def append_several(self, count: int, size: int) -> None:
        for _ in range(count):
            self.append(size=size, wait=True)

    def register(self) -> None:
        """Nobody comes."""

    def unregister(self) -> None:
        """Nobody goes: everybody counts from the first bundle on."""


MACHINES = pytest.mark.parametrize(
    "machine", [PowerLossMachine, IntervalMachine, DropOldestMachine]
)


@MACHINES
def test_what_was_promised_survives_any_interruption(machine: type[PowerLossMachine]) -> None:
    """Messages, answers and registrations survive; numbers and offsets never come twice."""
    run_machine(machine, examples=25, steps=40)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@MACHINES
def test_what_was_promised_survives_any_interruption_at_length(
    machine: type[PowerLossMachine],
) -> None:
    """The same, for as long as it takes to be sure."""
    for _ in range(10):  # hypothesis keeps the examples of a run in memory
        run_machine(machine, examples=400, steps=80)
