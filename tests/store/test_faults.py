"""What fails, fails in the open: the store goes on or says that it cannot, and loses nothing."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.log import Environment
from penstock.metrics import Metrics
from penstock.model.errors import (
    LogPoisoned,
    LogUnavailable,
    Retryable,
    StoreFull,
    StoreStopped,
    StoreUnavailable,
)
from penstock.model.settings import Durability, StoreSettings
from penstock.storage import LocalFiles
from penstock.store import Store
from tests.simulation.calls import Call
from tests.simulation.faults import PATIENCE_S, FaultyFiles
from tests.store.worlds import FOLDER, SMALL, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.simulation.faults import Fault

INTERVAL = replace(SMALL, log=replace(SMALL.log, durability=Durability.INTERVAL))
STOPPED = (LogUnavailable, StoreUnavailable)
OPERATIONS = [
    "create",
    "link",
    "make_folder",
    "map",
    "open",
    "pread",
    "protect",
    "pwrite",
    "remove",
    "rename",
    "sync",
    "sync_folder",
    "truncate",
]
SYNC = SMALL
NOTHING_IS_KEPT = 2
"""The seed of a power loss that costs everything unsynced."""


@pytest.fixture(autouse=True)
def _nobody_waits_for_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one thread: it commits what it waits for, and nothing happens while it sleeps."""
    monkeypatch.setattr("penstock.store.ack_log._GATHER_S", 0.0)
    monkeypatch.setattr("penstock.store.store.CLOSE_S", 0.0)


class Owner:
    """Uses a store, tries again what may be tried again, and opens it anew when it stops."""

    def __init__(self, world: World, *, dies: bool) -> None:
        """One that `dies` never closes the store: its process is killed instead."""
        self.world = world
        self.dies = dies

    def do(self, action: Callable[[], object]) -> None:
        """As often as it takes, within reason."""
        for _ in range(8):
            try:
                action()
                return
            except STOPPED:
                self.reopen()
            except (Retryable, OSError):
                self.world.pass_time(2.0)
        raise AssertionError("it never succeeds, and never stops")

    def open(self) -> None:
        """Opens the store, in the end."""
        for _ in range(8):
            try:
                self.world.open(self.world.files)
                return
            except (Retryable, OSError, *STOPPED):
                continue
        raise AssertionError("it cannot be opened any more")

    def reopen(self) -> None:
        """Ends it, whether it has stopped or not, and opens it again."""
        if self.dies:
            self.world.kill()
            self.world.files._inner = self.world.disk
        else:
            with contextlib.suppress(Retryable, OSError, *STOPPED):
                self.world.close()
        self.open()

    def live(self) -> None:
        """From append to deletion, with an end and a beginning in between."""
        world = self.world
        self.open()
        for name in ("left", "right"):
            self.do(lambda name=name: world.register(name))
        for raw, size in [(False, 1000), (True, 70_000), (True, 1000)]:
            self.do(lambda raw=raw, size=size: world.append(raw=raw, size=size))
        self.do(world.flush)
        self.do(lambda: world.receive("left"))
        if world.held:
            self.do(lambda: world.held and world.answer("nack"))
        self.do(world.drain)
        self.do(world.append)
        self.reopen()
        self.do(world.append)
        self.do(world.drain)


def live_with(fault: tuple[str, int, int], settings: StoreSettings, *, dies: bool) -> Fault:
    """A whole life in which one operation fails; then everything must be there."""
    operation, error, after = fault
    world = World(settings)
    world.files = FaultyFiles(world.disk)
    armed = world.files.fail(operation, error, after=after, partly=100)
    owner = Owner(world, dies=dies)
    owner.live()
    world.files.heal()
    owner.do(world.append)
    owner.do(world.drain)
    owner.reopen()
    world.drain()
    return armed


def fail_each(operation: str, error: int, settings: StoreSettings, *, dies: bool) -> None:
    """A life for each occurrence of the operation."""
    after = 0
    while live_with((operation, error, after), settings, dies=dies).hits:
        after += 1


@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_operation_may_fail_once(operation: str) -> None:
    """EIO at each occurrence in turn: it tries again or stops, and nothing is lost either way."""
    fail_each(operation, errno.EIO, INTERVAL, dies=False)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_disk_may_be_full_once(operation: str) -> None:
    """ENOSPC at each occurrence in turn, and the process dies: nothing is lost either way."""
    fail_each(operation, errno.ENOSPC, SYNC, dies=True)


@pytest.mark.soak
@pytest.mark.parametrize("dies", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("settings", [SYNC, INTERVAL], ids=["sync", "interval"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_operation_may_fail_in_any_way(
    operation: str, error: int, settings: StoreSettings, dies: bool
) -> None:
    """The same, with every error, durability and end."""
    fail_each(operation, error, settings, dies=dies)


# --- what stops it, and what does not ------------------------------------------------------------


@pytest.fixture
def world() -> World:
    """A store with one subscriber, and little patience with seals that fail."""
    world = World(replace(SMALL, seal_retries=2))
    world.open()
    world.register("left")
    return world


def reopen(world: World) -> None:
    """Closes the store, stopped or not, and opens it on a healthy disk."""
    with contextlib.suppress(*STOPPED):
        world.close()
    world.kill()
    world.open()


def test_seal_that_keeps_failing_stops_the_store(world: World) -> None:
    """After its retries nothing is taken and nothing delivered; opened again, nothing is lost."""
    fault = world.files.fail("create", errno.EIO, name="*.seg.tmp", times=None)
    world.append()
    for _ in range(10):
        world.pass_time(6.0)
    assert isinstance(world.store.failure, StoreStopped)
    assert fault.hits == 3
    with pytest.raises(StoreStopped, match="Input/output error"):
        world.append()
    with pytest.raises(StoreStopped):
        world.receive("left")
    reopen(world)
    world.drain()


def test_full_disk_puts_seals_off_for_as_long_as_it_lasts(world: World) -> None:
    """Appends are put off: the log must not take the space that its segments need."""
    fault = world.files.fail("create", errno.ENOSPC, name="*.seg.tmp", times=None)
    refused = 0
    for _ in range(10):
        try:
            world.append()
        except StoreFull:
            refused += 1
        world.pass_time(6.0)
    assert refused >= 5
    assert world.store.failure is None
    assert fault.hits > 3
    world.files.heal()
    world.drain()
    assert len(world.acknowledged) == 10 - refused


def test_segment_that_cannot_be_removed_is_tried_again(world: World) -> None:
    """The file goes in the end, and nothing of it comes again."""
    fault = world.files.fail("remove", errno.EIO, name="*.seg", times=None)
    world.append()
    world.drain()
    assert world.disk.names(FOLDER / "segments") == ["00000000000000000000.seg"]
    assert fault.hits > 1
    world.files.heal()
    world.pass_time(1.0)
    assert world.disk.names(FOLDER / "segments") == []
    reopen(world)
    assert not world.receive("left")


def test_segment_that_cannot_be_read_just_now_is_not_lost(world: World) -> None:
    """The subscriber hears of the error, and gets the bundle when it asks again."""
    world.append()
    world.flush()
    world.files.fail("map", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        world.receive("left")
    assert world.receive("left")


def test_answer_that_could_not_be_synced_is_not_called_durable(world: World) -> None:
    """The subscriber hears LogPoisoned; after a power loss the bundle comes again."""
    world.append()
    world.flush()
    world.receive("left")
    world.files.fail("sync", errno.EIO, name="ack.log")
    _, delivery = world.held[0]
    with pytest.raises(LogPoisoned, match="Input/output error"):
        delivery.ack().wait()
    world.lose_power(NOTHING_IS_KEPT)
    world.open()
    assert world.receive("left")


def test_poisoned_ack_log_stops_the_store(world: World) -> None:
    """Without answers nothing can ever be deleted, so nothing more is taken."""
    world.append()
    world.flush()
    world.receive("left")
    world.files.fail("sync", errno.EIO, name="ack.log")
    world.answer("ack")
    with pytest.raises(StoreStopped):
        world.append()


# --- nobody hangs --------------------------------------------------------------------------------


def test_nobody_hangs_when_the_store_stops(tmp_path: Path) -> None:
    """Whoever waits for a bundle, for a seal or for room hears that there will be none."""
    files = FaultyFiles(LocalFiles())
    settings = replace(SMALL, seal_retries=0, budget_bytes=256 * 1024)
    store = Store.open(tmp_path, settings, env=Environment(files=files, metrics=Metrics()))
    subscription = store.subscribe("left")
    files.fail("create", errno.EIO, name="*.seg.tmp", times=None)
    gate = files.hold_up("create", name="*.seg.tmp")
    store.append_durable(bytes(range(1, 256)) * 400)
    waiting = [
        Call(subscription.next_bundle),
        Call(lambda: next(iter(subscription))),
        Call(store.flush),
        Call(lambda: [store.append_durable(b"x" * 60_000) for _ in range(9)]),
    ]
    assert gate.reached.wait(PATIENCE_S)
    gate.open()
    assert [type(call.outcome()) for call in waiting] == [StoreStopped] * len(waiting)
    assert Call(store.close).outcome() is None
