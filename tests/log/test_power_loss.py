"""Whatever is cut short, and wherever: what was promised before is there after."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from penstock.log import Environment, Log
from penstock.metrics import Metrics
from penstock.model.errors import DiskFull, LogPoisoned
from penstock.model.settings import KIB, Durability, LogSettings
from tests.simulation.faults import FaultyFiles
from tests.simulation.machines import run_machine
from tests.simulation.manual_pool import ManualClock, ManualPool
from tests.simulation.power_loss import PowerLossFiles, PowerLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log import Commit

FOLDER = Path("/logs/topic")
CHECKPOINT = FOLDER / "log.ckpt"
SIZES = st.sampled_from([0, 1, 300, 511, 3000, 20_000, 70_000])
SEEDS = st.integers(0, 2**32)
SYNC_INTERVAL_S = 0.5
ROTATE_S = 100.0


@dataclass
class Model:
    """What the log has promised."""

    queued: dict[int, bytes] = field(default_factory=dict)
    """What this log object was given, by offset; it may or may not survive."""
    attempted: dict[int, set[bytes]] = field(default_factory=dict)
    """Everything that was ever queued for an offset and not refused."""
    visible: dict[int, bytes] = field(default_factory=dict)
    """What readers have seen: survives the process, in every durability mode."""
    safe_end: int = 0
    """Visible offsets below survive a power loss too."""
    given_out: int = 0
    """No lower offset may be given out again."""
    floor: int = 0

    def queue(self, offset: int, messages: list[bytes]) -> None:
        for at, message in enumerate(messages, offset):
            self.queued[at] = message
            self.attempted.setdefault(at, set()).add(message)

    def refuse(self, offsets: list[int]) -> None:
        """The caller was told that these messages are not in the log."""
        for offset in offsets:
            message = self.queued.pop(offset)
            self.attempted[offset].discard(message)

    def show(self, end_offset: int) -> None:
        """Everything queued below `end_offset` became visible."""
        for offset in [offset for offset in self.queued if offset < end_offset]:
            self.visible[offset] = self.queued.pop(offset)
        self.given_out = max(self.given_out, end_offset)

    def lose_unsafe(self) -> None:
        """Power was lost: what was visible only may be gone."""
        self.visible = {at: data for at, data in self.visible.items() if at < self.safe_end}
        self.given_out = self.safe_end


class PowerLossMachine(RuleBasedStateMachine):
    """One log, used and interrupted in every way."""

    durability = Durability.SYNC

    @initialize(
        cache_bytes=st.sampled_from([0, 8 * KIB]), retention_bytes=st.sampled_from([0, None])
    )
    def begin(self, cache_bytes: int, retention_bytes: int | None) -> None:
        self.settings = LogSettings(
            durability=self.durability,
            sync_interval_s=SYNC_INTERVAL_S,
            queue_bytes=512 * KIB,
            max_message_bytes=128 * KIB,
            rotate_bytes=64 * KIB,
            rotate_s=ROTATE_S,
            cache_bytes=cache_bytes,
            retention_bytes=retention_bytes,
        )
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.disk = PowerLossFiles()
        self.model = Model()
        self.messages = 0
        self.on_cut: Callable[[], None] = self.lose_power
        self.seed = 0
        self.reopen()

    # --- using it ------------------------------------------------------------------------------

    @rule(size=SIZES, wait=st.booleans())
    def append(self, size: int, wait: bool) -> None:
        self.attempt(lambda: self.do_append([self.message(size)], wait=wait))

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=5), wait=st.booleans())
    def append_many(self, sizes: list[int], wait: bool) -> None:
        self.attempt(lambda: self.do_append([self.message(size) for size in sizes], wait=wait))

    @rule(size=SIZES)
    def append_durable(self, size: int) -> None:
        self.attempt(lambda: self.do_append_durable(self.message(size)))

    @precondition(lambda self: self.waiting)
    @rule()
    def wait_for_durable(self) -> None:
        self.attempt(lambda: self.wait(self.waiting[-1][0]))

    @rule()
    def flush(self) -> None:
        self.attempt(self.do_flush)

    @rule()
    def run_background_jobs(self) -> None:
        self.attempt(self.run_jobs)

    @rule(seconds=st.sampled_from([SYNC_INTERVAL_S, 2.0, ROTATE_S + 1]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.attempt(self.run_jobs)

    @rule(seconds=st.sampled_from([-86400.0, -1.0, 3600.0]))
    def wall_clock_is_set(self, seconds: float) -> None:
        self.clock.turn_wall_clock(seconds)

    @rule(part=st.floats(0, 1))
    def read_from_an_offset(self, part: float) -> None:
        start, end = self.log.start_offset, self.log.end_offset
        offset = start + int(part * (end - start))
        found = dict(self.log.read(offset))
        lost = self.lost_offsets()
        assert found == {at: self.model.visible[at] for at in range(offset, end) if at not in lost}

    @rule(part=st.sampled_from([0.3, 0.6, 1.0]))
    def forget(self, part: float) -> None:
        floor = int(part * self.log.end_offset)
        self.model.floor = max(self.model.floor, floor)
        self.attempt(lambda: self.do_forget(floor))

    # --- interrupting it -----------------------------------------------------------------------

    @rule()
    def close_and_reopen(self) -> None:
        self.attempt(self.do_close)

    @rule()
    def kill_and_reopen(self) -> None:
        self.kill()
        self.reopen()

    @rule(seed=SEEDS)
    def lose_power_and_reopen(self, seed: int) -> None:
        self.seed = seed
        self.lose_power()
        self.reopen()

    @rule(steps=st.integers(0, 25), seed=SEEDS, kill=st.booleans())
    def soon_be_cut(self, steps: int, seed: int, kill: bool) -> None:
        self.disk.cut_after(steps)
        self.seed, self.on_cut = seed, self.kill if kill else self.lose_power

    @rule(steps=st.integers(0, 12), seed=SEEDS)
    def lose_power_twice(self, steps: int, seed: int) -> None:
        """The second time, recovery is under way."""
        self.seed = seed
        self.lose_power()
        self.disk.cut_after(steps)
        self.reopen()

    @rule(
        operation=st.sampled_from(["sync", "pwrite", "rename", "sync_folder"]),
        error=st.sampled_from([errno.EIO, errno.ENOSPC]),
        after=st.integers(0, 6),
    )
    def fail_to_reopen(self, operation: str, error: int, after: int) -> None:
        """An error in recovery leaves the log as good as it was."""
        self.kill()
        faulty = FaultyFiles(self.disk)
        faulty.fail(operation, error, after=after)
        with contextlib.suppress(OSError, DiskFull):
            self.open(faulty)
        self.kill()
        self.reopen()

    @rule(after=st.integers(0, 3))
    def soon_fail_a_sync(self, after: int) -> None:
        self.files.fail("sync", after=after)

    @rule(after=st.integers(0, 3), partly=st.sampled_from([0, 100, 4000, 69_000]))
    def soon_fill_the_disk(self, after: int, partly: int) -> None:
        self.files.fail("pwrite", errno.ENOSPC, after=after, partly=partly)

    @rule(damage=st.sampled_from([None, 0, 60]))
    def lose_the_checkpoint(self, damage: int | None) -> None:
        """It is damaged or deleted while the log is closed."""
        self.kill()
        if CHECKPOINT.name in self.disk.names(FOLDER):
            if damage is None:
                self.disk.remove(CHECKPOINT)
                self.disk.sync_folder(FOLDER)
            else:
                self.disk.damage(CHECKPOINT, damage, b"\xff")
        self.reopen()

    # --- the parts of the rules ----------------------------------------------------------------

    def attempt(self, action: Callable[[], None]) -> None:
        """Goes on as the owner of a log would, whatever happens."""
        try:
            with contextlib.suppress(DiskFull, LogPoisoned):
                action()
            self.settle()
            if self.log.failure is not None:
                self.do_close()
        except PowerLost:
            self.settle()
            self.on_cut()
            self.reopen()

    def settle(self) -> None:
        """Notes what became of the messages that waited."""
        self.model.show(self.log.end_offset)
        for durable, offsets in [item for item in self.waiting if item[0].done]:
            self.waiting.remove((durable, offsets))
            try:
                durable.wait()
            except DiskFull:
                self.model.refuse(offsets)
            except LogPoisoned:
                continue
            else:
                assert all(offset < self.log.end_offset for offset in offsets)
        if self.durability is Durability.SYNC:
            self.model.safe_end = self.log.end_offset

    def do_append(self, messages: list[bytes], *, wait: bool) -> None:
        self.make_room()
        append = self.log.append_many(messages) if len(messages) > 1 else self.log.append(*messages)
        assert append.offset >= self.model.given_out
        self.model.queue(append.offset, messages)
        offsets = list(range(append.offset, append.offset + len(messages)))
        if self.durability is not Durability.BUFFER:
            self.waiting.append((append.durable, offsets))
        if wait:
            self.wait(append.durable)

    def do_append_durable(self, message: bytes) -> None:
        self.make_room()
        expected = max([self.log.end_offset - 1, *self.model.queued]) + 1
        self.model.queue(expected, [message])
        try:
            assert self.log.append_durable(message) == expected
        except DiskFull:
            self.model.refuse([expected])
            raise

    def make_room(self) -> None:
        """Lets the queue drain, since an append that waits for room would wait for this thread."""
        while self.log.queued_bytes > self.settings.queue_bytes // 4:
            self.clock.advance(2.0)  # a full disk is tried again
            self.run_jobs()

    def wait(self, durable: Commit) -> None:
        durable.wait()
        assert durable.done

    def do_flush(self) -> None:
        """What was appended before is safe after, in every durability mode."""
        end = max([self.log.end_offset - 1, *self.model.queued]) + 1
        self.log.flush()
        assert self.log.end_offset == end
        self.model.safe_end = end

    def run_jobs(self) -> None:
        self.pool.run()
        self.settle()
        if self.durability is Durability.INTERVAL and not self.log.queued_bytes:
            end = self.log.end_offset
            self.clock.advance(SYNC_INTERVAL_S)
            self.pool.run()
            if self.log.failure is None:
                self.model.safe_end = end

    def do_forget(self, floor: int) -> None:
        self.log.set_floor(floor)
        self.log.enforce_retention()
        assert self.log.start_offset <= self.model.floor

    def do_close(self) -> None:
        healthy = self.log.failure is None
        try:
            self.log.close()
        except (OSError, LogPoisoned, DiskFull):  # it is closed all the same
            healthy = False
        self.settle()
        if healthy:
            self.model.safe_end = self.log.end_offset
        self.reopen()

    def kill(self) -> None:
        self.disk = self.disk.kill()

    def lose_power(self) -> None:
        self.disk = self.disk.lose_power(Random(self.seed))
        self.model.lose_unsafe()

    def reopen(self) -> None:
        """Opens, as often as it takes, and checks what is there against the model."""
        while True:
            try:
                self.open(FaultyFiles(self.disk))
                break
            except PowerLost:
                self.lose_power()
        self.check()

    def open(self, files: FaultyFiles) -> None:
        self.files = files
        self.pool = ManualPool(self.clock)
        self.waiting: list[tuple[Commit, list[int]]] = []
        self.log = Log.open(
            FOLDER,
            self.settings,
            env=Environment(files=files, clock=self.clock, pool=self.pool, metrics=self.metrics),
        )

    def check(self) -> None:
        log, model = self.log, self.model
        start, end, lost = log.start_offset, log.end_offset, self.lost_offsets()
        found = dict(log.read())
        assert start <= model.floor
        assert end >= model.given_out
        assert {at: found.get(at) for at in model.visible if at >= start} == {
            at: data for at, data in model.visible.items() if at >= start
        }
        assert not lost & model.visible.keys()
        assert lost <= model.attempted.keys()
        assert found.keys() | {at for at in lost if at >= start} == set(range(start, end))
        assert all(data in model.attempted[at] for at, data in found.items())
        # What a reader of the reopened log may see is never lost again.
        model.visible, model.safe_end, model.given_out = found, end, end
        model.queued.clear()

    def lost_offsets(self) -> set[int]:
        return {at for lost in self.log.lost for at in range(lost.first_offset, lost.end_offset)}

    def message(self, size: int) -> bytes:
        self.messages += 1
        if size == 3000 and self.messages % 2:
            return bytes(size)  # looks like the empty part of a file
        return Random(self.messages).randbytes(size)


class IntervalMachine(PowerLossMachine):
    """Acknowledged after the write: the process may die, and what was synced outlives power."""

    durability = Durability.INTERVAL


class BufferMachine(PowerLossMachine):
    """Acknowledged at once: what was flushed is safe."""

    durability = Durability.BUFFER


MACHINES = pytest.mark.parametrize("machine", [PowerLossMachine, IntervalMachine, BufferMachine])


@MACHINES
def test_what_was_promised_survives_any_interruption(machine: type[PowerLossMachine]) -> None:
    """Acknowledged messages keep their offsets and contents, and nobody else gets these offsets."""
    run_machine(machine, examples=60, steps=50)


@pytest.mark.soak
@MACHINES
def test_what_was_promised_survives_any_interruption_at_length(
    machine: type[PowerLossMachine],
) -> None:
    """The same, for as long as it takes to be sure."""
    for _ in range(10):  # hypothesis keeps the examples of a run in memory
        run_machine(machine, examples=400, steps=80)
