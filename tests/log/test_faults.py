"""What fails, fails in the open: nobody waits for ever, nothing is half there, the log goes on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.log import Environment, Log
from penstock.metrics import Metrics
from penstock.model.errors import DiskFull, LogClosed, LogPoisoned, QueueFull, TooManyFiles
from penstock.model.settings import KIB, Durability, LogSettings
from penstock.storage.files import LocalFiles
from tests.simulation.calls import Call
from tests.simulation.faults import PATIENCE_S, FaultyFiles
from tests.simulation.manual_pool import ManualClock, ManualPool
from tests.simulation.power_loss import PowerLossFiles, PowerLost

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = LogSettings(rotate_bytes=64 * KIB, cache_bytes=0)
BUFFER = LogSettings(rotate_bytes=64 * KIB, cache_bytes=0, durability=Durability.BUFFER)
INTERVAL = LogSettings(rotate_bytes=64 * KIB, cache_bytes=0, durability=Durability.INTERVAL)
NARROW = LogSettings(queue_bytes=1000, max_message_bytes=500)
FULL = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG]


class World:
    """A folder on a disk that fails when told to, with time and background jobs by hand."""

    def __init__(self, folder: Path, disk: LocalFiles | PowerLossFiles) -> None:
        self.folder = folder
        self.disk = disk
        self.files = FaultyFiles(disk)
        self.clock = ManualClock()
        self.pool = ManualPool(self.clock)
        self.opened: list[Log] = []

    def open(self, settings: LogSettings = SMALL) -> Log:
        """Opens the log, on a disk that fails as this world's does."""
        seams = {"files": self.files, "clock": self.clock, "pool": self.pool}
        log = Log.open(self.folder, settings, env=Environment(metrics=Metrics(), **seams))
        self.opened.append(log)
        return log

    def reopen(self, settings: LogSettings = SMALL) -> Log:
        """Closes the log, poisoned or not, and opens it on a healthy disk."""
        with contextlib.suppress(LogPoisoned):
            self.opened[-1].close()
        self.files.heal()
        return self.open(settings)

    def lose_power(self) -> None:
        """Drops all that was not synced."""
        assert isinstance(self.disk, PowerLossFiles)
        self.disk = self.disk.lose_power(Random(_KEEPS_NOTHING))
        self.files = FaultyFiles(self.disk)

    def size(self, name: str) -> int:
        """Of a file in the folder."""
        file = self.disk.open(self.folder / name)
        try:
            return file.size()
        finally:
            file.close()

    def content(self, name: str) -> bytes:
        """Of a file in the folder."""
        file = self.disk.open(self.folder / name)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()


_KEEPS_NOTHING = next(n for n in range(99) if Random(n).choice([0.0, 0.5, 0.9, 1.0]) == 0.0)
FIRST = f"{0:020d}.wal"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """On the real file system."""
    world = World(tmp_path / "log", LocalFiles())
    yield world
    world.files.heal()
    for log in world.opened:
        log.close()


@pytest.fixture
def memory(tmp_path: Path) -> World:
    """On a disk that can lose power and forgets what a failed fsync did not write."""
    return World(tmp_path / "log", PowerLossFiles())


def read(log: Log, start: int = 0) -> list[bytes]:
    """All messages from an offset on."""
    messages = list(log.read(start))
    assert [message.offset for message in messages] == list(range(start, start + len(messages)))
    return [message.data for message in messages]


# --- a failed fsync ------------------------------------------------------------------------------


def test_failed_fsync_fails_everyone_who_waited(world: World) -> None:
    """Every append of the commit raises LogPoisoned, and says what the system said."""
    log = world.open()
    world.files.fail("sync", errno.EIO)
    appends = [log.append(b"a"), log.append(b"b")]
    for append in appends:
        with pytest.raises(LogPoisoned, match="Input/output error"):
            append.durable.wait()


def test_failed_fsync_is_never_tried_again(world: World) -> None:
    """A second fsync would succeed and mean nothing, so there is none, not even at close."""
    log = world.open()
    fault = world.files.fail("sync", name="*.wal", times=None)
    with pytest.raises(LogPoisoned):
        log.append_durable(b"a")
    log.close()
    world.pool.run()
    assert fault.hits == 1


def test_poisoned_log_takes_nothing_more(world: World) -> None:
    """Append in every form and flush raise LogPoisoned at once."""
    log = world.open()
    world.files.fail("sync")
    with pytest.raises(LogPoisoned):
        log.append_durable(b"a")
    for refused in (log.append, log.append_durable, lambda m: log.append_many([m])):
        with pytest.raises(LogPoisoned):
            refused(b"b")
    with pytest.raises(LogPoisoned):
        log.flush()
    with pytest.raises(LogPoisoned):
        asyncio.run(log.append_async(b"c"))
    assert isinstance(log.failure, LogPoisoned)


def test_poisoned_log_serves_what_was_visible(world: World) -> None:
    """Readers get what was durable before, nothing of the failed commit, and then the error."""
    log = world.open()
    log.append_durable(b"before")
    world.files.fail("sync")
    with pytest.raises(LogPoisoned):
        log.append_durable(b"after")
    assert read(log) == [b"before"]
    reader = log.read(1, follow=True)
    with pytest.raises(LogPoisoned):
        reader.next_batch()


def test_poisoned_log_closes_and_lets_the_next_one_in(world: World) -> None:
    """Close succeeds, a second one too, and then the log says that it is closed."""
    log = world.open()
    world.files.fail("sync")
    with pytest.raises(LogPoisoned):
        log.append_durable(b"a")
    log.close()
    log.close()
    with pytest.raises(LogClosed):
        log.append(b"b")
    assert world.open().end_offset in (0, 1)


def test_reopening_copies_what_is_readable_into_a_new_inode(world: World) -> None:
    """The pages of the old file are not trusted, and offsets go on."""
    log = world.open()
    log.append_durable(b"before")
    inode = (world.folder / FIRST).stat().st_ino
    world.files.fail("sync")
    with pytest.raises(LogPoisoned):
        log.append_durable(b"unsure")
    log = world.reopen()
    assert (world.folder / FIRST).stat().st_ino != inode
    assert read(log)[0] == b"before"
    assert log.append_durable(b"on") == log.end_offset - 1 == len(read(log)) - 1


@pytest.mark.parametrize("settings", [SMALL, INTERVAL, BUFFER], ids=["sync", "interval", "buffer"])
def test_what_a_reopened_log_shows_survives_a_power_loss(
    memory: World, settings: LogSettings
) -> None:
    """After a failed fsync, whatever file it hit, reopening makes all that is readable durable."""
    log = memory.open(settings)
    log.append_many([b"a", b"b"])
    memory.pool.run()
    memory.files.fail("sync", name="*.wal*")
    log.append(bytes(70 * KIB))  # too large for the file: the first one is sealed
    memory.pool.run()
    assert isinstance(log.failure, LogPoisoned)
    shown = read(memory.reopen(settings))
    memory.lose_power()
    assert read(memory.open(settings))[: len(shown)] == shown == [b"a", b"b"]


def test_seal_written_by_a_killed_process_is_synced_before_it_is_trusted(memory: World) -> None:
    """A process that died between sealing and syncing leaves a file that is not durable yet."""
    log = memory.open(BUFFER)
    log.append(b"a")
    memory.pool.run()
    log.append(bytes(70 * KIB))  # too large for the file: the first one is sealed
    assert isinstance(memory.disk, PowerLossFiles)
    memory.disk.cut_after(2)  # the seal and its truncation, but not their sync
    with pytest.raises(PowerLost):
        memory.pool.run()
    memory.disk = memory.disk.kill()
    memory.files = FaultyFiles(memory.disk)
    assert read(memory.open(BUFFER)) == [b"a"]
    memory.lose_power()
    assert read(memory.open(BUFFER)) == [b"a"]


def test_seal_that_outlived_its_frames_is_not_believed(memory: World) -> None:
    """Power lost before both were synced: what is gone is named, and the rest is read."""
    log = memory.open(BUFFER)
    log.append_many([b"x" * 5000, b"y" * 5000, b"z" * 5000])
    memory.pool.run()
    log.append(bytes(70 * KIB))  # too large for the file: the first one is sealed
    assert isinstance(memory.disk, PowerLossFiles)
    memory.disk.cut_after(2)  # the seal and its truncation, but not their sync
    with pytest.raises(PowerLost):
        memory.pool.run()
    for seed in range(40):
        log = World(memory.folder, _copy(memory.disk, seed)).open(BUFFER)
        found = {message.offset for message in log.read()}
        lost = {n for lost in log.lost for n in range(lost.first_offset, lost.end_offset)}
        assert found | lost == set(range(log.end_offset))


def test_fsync_that_fails_for_ever_leaves_the_log_as_it_was(world: World) -> None:
    """Each attempt to open fails with the system's error, frees the lock and loses nothing."""
    log = world.open()
    log.append_durable(b"before")
    world.files.fail("sync", times=None)
    with pytest.raises(LogPoisoned):
        log.append_durable(b"unsure")
    log.close()
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            world.open()
    world.files.heal()
    assert read(world.open())[0] == b"before"


def test_failed_write_poisons(world: World) -> None:
    """EIO in the middle of a write: nobody knows what the file holds."""
    log = world.open()
    log.append_durable(b"before")
    world.files.fail("pwrite", errno.EIO, partly=10)
    with pytest.raises(LogPoisoned):
        log.append_durable(b"torn")
    assert read(world.reopen()) == [b"before"]


@pytest.mark.parametrize("operation", ["pwrite", "truncate", "sync"])
def test_failing_seal_poisons_and_loses_nothing(world: World, operation: str) -> None:
    """Rotation stops where the old file cannot be finished; its messages stay."""
    log = world.open()
    log.append_durable(b"first")
    world.files.fail(operation, errno.EIO, name=FIRST)
    with pytest.raises(LogPoisoned):
        log.append_durable(bytes(70 * KIB))
    assert read(log) == [b"first"]
    log = world.reopen()
    assert read(log) == [b"first"]
    assert log.append_durable(b"second") == 1


@pytest.mark.parametrize("operation", ["create", "rename", "sync_folder"])
def test_failing_to_begin_the_next_file_poisons_and_loses_nothing(
    world: World, operation: str
) -> None:
    """A folder that cannot be written or synced stops the log at rotation."""
    log = world.open()
    world.pool.run()
    log.append_durable(b"first")
    world.files.fail(operation, errno.EIO)
    with pytest.raises(LogPoisoned):
        log.append_durable(bytes(70 * KIB))
    log = world.reopen()
    assert read(log) == [b"first"]
    assert log.append_durable(b"second") == 1


def test_unsynced_folder_at_rotation_takes_no_message_along(memory: World) -> None:
    """When the new file's name was not synced nothing was acknowledged in it."""
    log = memory.open()
    memory.pool.run()
    log.append_durable(b"first")
    memory.files.fail("sync_folder", errno.EIO)
    with pytest.raises(LogPoisoned):
        log.append_durable(bytes(70 * KIB))
    memory.lose_power()
    assert read(memory.open()) == [b"first"]


# --- a full disk ---------------------------------------------------------------------------------


@pytest.mark.parametrize("error", FULL, ids=["ENOSPC", "EDQUOT", "EFBIG"])
def test_full_disk_is_retryable(world: World, error: int) -> None:
    """DiskFull says when to try again, and then the message gets the same offset."""
    log = world.open()
    log.append_durable(b"before")
    world.files.fail("pwrite", error, partly=20)
    append = log.append(b"x" * 1000)
    with pytest.raises(DiskFull) as raised:
        append.durable.wait()
    assert raised.value.retry_after_s > 0
    assert log.failure is None
    assert log.append_durable(b"x" * 1000) == append.offset == 1
    assert read(log) == [b"before", b"x" * 1000]


@pytest.mark.parametrize("partly", [0, 1, 16, 17, 900, 1016, 1020])
def test_full_disk_leaves_no_torn_frame_behind(world: World, partly: int) -> None:
    """The file ends where it ended before the write that failed."""
    log = world.open()
    log.append_durable(b"before")
    world.files.fail("pwrite", errno.ENOSPC, partly=partly)
    append = log.append_many([b"x" * 1000, b"y" * 1000])
    with pytest.raises(DiskFull):
        append.durable.wait()
    assert world.content(FIRST).endswith(b"before")


def test_full_disk_takes_back_all_pieces_of_a_large_commit(world: World) -> None:
    """A commit of several writes, the last of which fails, is not in the log at all."""
    log = world.open()
    log.append_durable(b"before")
    world.files.fail("pwrite", errno.ENOSPC, after=2, partly=30)
    append = log.append_many([b"%d" % n for n in range(2000)])
    with pytest.raises(DiskFull):
        append.durable.wait()
    assert world.content(FIRST).endswith(b"before")
    assert read(world.reopen()) == [b"before"]


def test_refused_message_does_not_come_back_after_a_power_loss(memory: World) -> None:
    """The caller sends it again; a disk that kept the write but not its undoing shows it once."""
    log = memory.open()
    log.append_durable(b"before")
    memory.files.fail("pwrite", errno.ENOSPC, partly=25)  # the first frame and a bit of the second
    append = log.append_many([b"refused", b"refused too"])
    with pytest.raises(DiskFull):
        append.durable.wait()
    for seed in range(20):
        after = World(memory.folder, _copy(memory.disk, seed))
        assert read(after.open()) == [b"before"]


def test_messages_behind_a_refused_commit_are_refused_too(world: World) -> None:
    """Their offsets began too high; those who retry get the same offsets in the same order."""
    log = world.open()
    gate = world.files.hold_up("pwrite", name=FIRST)
    world.files.fail("pwrite", errno.ENOSPC, name=FIRST)
    first = Call(lambda: log.append_durable(b"first"))
    assert gate.reached.wait(PATIENCE_S)
    second = log.append(b"second")
    gate.open()
    assert isinstance(first.outcome(), DiskFull)
    with pytest.raises(DiskFull):
        second.durable.wait()
    assert second.offset == 1
    assert [log.append_durable(b"first"), log.append_durable(b"second")] == [0, 1]


def test_buffered_messages_wait_for_space(world: World) -> None:
    """With `buffer` they are acknowledged already: kept, and written when space is back."""
    log = world.open(BUFFER)
    world.files.fail("pwrite", errno.ENOSPC, name=FIRST, partly=5, times=3)
    log.append(b"a").durable.wait()
    world.pool.run()
    log.append(b"b").durable.wait()
    assert read(log) == []
    for _ in range(3):
        world.clock.advance(1.0)
        world.pool.run()
    assert read(log) == [b"a", b"b"]
    assert read(world.reopen(BUFFER)) == [b"a", b"b"]


def test_flush_on_a_full_disk_says_so_and_keeps_buffered_messages(world: World) -> None:
    """Flush raises DiskFull; the next one finds the messages where they were."""
    log = world.open(BUFFER)
    world.files.fail("pwrite", errno.ENOSPC, name=FIRST)
    log.append(b"a")
    with pytest.raises(DiskFull):
        log.flush()
    log.flush()
    assert read(log) == [b"a"]


def test_closing_on_a_full_disk_says_what_was_lost(world: World) -> None:
    """Buffered messages that never found space make close raise; it is closed all the same."""
    log = world.open(BUFFER)
    world.files.fail("pwrite", errno.ENOSPC, times=None)
    log.append(b"a")
    with pytest.raises(DiskFull):
        log.close()
    world.files.heal()
    world.clock.advance(60.0)
    world.pool.run()  # the retry that was planned writes nothing any more
    assert read(world.open(BUFFER)) == []


def test_full_disk_does_not_keep_earlier_messages_from_their_sync(memory: World) -> None:
    """With `interval`, what was acknowledged before is synced though the next write fails."""
    log = memory.open(INTERVAL)
    log.append(b"early").durable.wait()
    memory.clock.advance(INTERVAL.sync_interval_s)
    memory.pool.run_timers()  # asks for the sync
    memory.files.fail("pwrite", errno.ENOSPC, name=FIRST)
    late = log.append(b"late")  # joins the commit that syncs
    memory.pool.run()
    assert late.durable.done
    memory.clock.advance(INTERVAL.sync_interval_s)
    memory.pool.run()
    memory.lose_power()
    assert read(memory.open(INTERVAL)) == [b"early"]


@pytest.mark.parametrize("failing", ["seal", "next file"])
def test_full_disk_at_rotation_is_retryable(world: World, failing: str) -> None:
    """Neither the seal nor the next file finds space: the message is refused, the log goes on."""
    log = world.open()
    log.append_durable(b"first")
    name = FIRST if failing == "seal" else f"{1:020d}.wal.tmp"
    world.files.fail("pwrite", errno.ENOSPC, name=name, partly=10)
    with pytest.raises(DiskFull):
        log.append_durable(bytes(70 * KIB))
    assert read(log) == [b"first"]
    assert log.append_durable(bytes(70 * KIB)) == 1
    assert read(world.reopen()) == [b"first", bytes(70 * KIB)]


@pytest.mark.parametrize("operation", ["create", "pwrite", "sync", "rename", "sync_folder"])
def test_log_opens_on_a_full_disk_and_goes_on_when_there_is_space(
    world: World, operation: str
) -> None:
    """No space for a file to write to: reading works, appends are refused until there is."""
    world.open().append_durable(b"before")
    world.opened[-1].close()
    world.files.fail(operation, errno.ENOSPC, times=None)
    log = world.open()
    assert read(log) == [b"before"]
    with pytest.raises(DiskFull):
        log.append_durable(b"after")
    world.files.heal()
    assert log.append_durable(b"after") == 1
    assert read(log) == [b"before", b"after"]


def test_recovery_on_a_full_disk_says_so_and_harms_nothing(memory: World) -> None:
    """A log that cannot be copied for want of space is left as it is; opening again succeeds."""
    memory.open().append_durable(b"before")
    memory.disk = memory.disk.kill()
    memory.files = FaultyFiles(memory.disk)
    memory.files.fail("pwrite", errno.ENOSPC, partly=100)
    with pytest.raises(DiskFull):
        memory.open()
    assert read(memory.open()) == [b"before"]


@pytest.mark.parametrize("operation", ["create", "pwrite", "sync", "rename"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_failing_checkpoint_harms_nothing(world: World, operation: str, error: int) -> None:
    """The log goes on without one, and the next opening reads the files instead."""
    world.files.fail(operation, error, name="log.ckpt*", times=None)
    log = world.open()
    log.append_durable(b"first")
    log.append_durable(bytes(70 * KIB))
    world.pool.run()
    log.close()
    assert not (world.folder / "log.ckpt").exists()
    assert read(world.open()) == [b"first", bytes(70 * KIB)]


def test_removals_reach_the_disk_in_order(memory: World) -> None:
    """Retention cut short by a power loss leaves no hole between the files that are left."""
    settings = LogSettings(rotate_bytes=64 * KIB, cache_bytes=0, retention_bytes=0)
    log = memory.open(settings)
    for number in range(5):
        log.append_durable(b"%d" % number * (40 * KIB))
    memory.pool.run()
    log.set_floor(5)
    assert isinstance(memory.disk, PowerLossFiles)
    memory.disk.cut_after(3)
    with pytest.raises(PowerLost):
        log.enforce_retention()
    for seed in range(40):
        log = World(memory.folder, _copy(memory.disk, seed)).open(settings)
        assert log.lost == ()
        assert len(read(log, log.start_offset)) == 5 - log.start_offset


def test_offsets_go_on_when_messages_and_checkpoint_are_gone(world: World) -> None:
    """Retention removed all, somebody the checkpoint: a file's name says what comes next."""
    settings = LogSettings(rotate_bytes=64 * KIB, retention_bytes=0)
    world.open(settings).append_many([b"a", b"b"]).durable.wait()
    log = world.reopen(settings)
    log.set_floor(2)
    assert log.enforce_retention() == 1
    log.close()
    (world.folder / "log.ckpt").unlink()
    log = world.open(settings)
    assert (log.start_offset, log.lost, log.append_durable(b"c")) == (2, (), 2)


def test_offsets_of_an_unreadable_file_are_not_given_out_again(memory: World) -> None:
    """Recovery that writes off a whole file may be cut short anywhere."""
    log = memory.open()
    for number in range(5):
        log.append_durable(b"%d" % number)
    memory.disk = memory.disk.kill()
    assert isinstance(memory.disk, PowerLossFiles)
    memory.disk.damage(memory.folder / FIRST, 0, bytes(4096))
    for steps in range(20):
        disk = _copy(memory.disk, 0)
        disk.cut_after(steps)
        try:
            World(memory.folder, disk).open()
        except PowerLost:
            disk = disk.lose_power(Random(steps))
        else:
            disk = disk.kill()
        log = World(memory.folder, disk).open()
        assert log.append_durable(b"next") >= 5
        assert {0, 1, 2, 3, 4} <= {
            n for lost in log.lost for n in range(lost.first_offset, lost.end_offset)
        }


def test_unreadable_first_file_costs_nothing_but_itself(world: World) -> None:
    """Without a checkpoint too, the files behind it are still known as this log's."""
    log = world.open()
    for number in range(3):
        log.append_durable(b"%d" % number * (40 * KIB))
    log.close()
    (world.folder / "log.ckpt").unlink()
    with (world.folder / FIRST).open("r+b") as file:
        file.write(bytes(4096))
    log = world.open()
    assert [(lost.first_offset, lost.end_offset) for lost in log.lost] == [(0, 1)]
    assert [message.offset for message in log.read()] == [1, 2]


def _copy(disk: LocalFiles | PowerLossFiles, seed: int) -> PowerLossFiles:
    """The disk after a power loss, which leaves the original to be lost again in another way."""
    assert isinstance(disk, PowerLossFiles)
    return disk.lose_power(Random(seed))


# --- short and interrupted writes ----------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 7, 4096])
def test_short_writes_are_continued(
    world: World, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A system that takes a few bytes at a time gets all of them, in their places."""
    pwritev, pwrite = os.pwritev, os.pwrite
    messages = [b"first", b"", b"x" * 5000, b"last"]
    log = world.open()

    def write_few(handle: int, pieces: list[bytes], position: int) -> int:
        return pwritev(handle, [b"".join(pieces)[:most]], position)

    monkeypatch.setattr(os, "pwritev", write_few)
    monkeypatch.setattr(os, "pwrite", lambda handle, data, at: pwrite(handle, data[:most], at))
    log.append_many(messages).durable.wait()
    monkeypatch.undo()
    assert read(world.reopen()) == messages


def test_write_of_nothing_is_a_full_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that takes no byte and says no error does not make the log spin."""
    log = world.open()
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(DiskFull):
        log.append_durable(b"a")
    monkeypatch.undo()
    assert log.append_durable(b"a") == 0


# --- a full queue, and nobody hangs --------------------------------------------------------------


def test_full_queue_refuses_those_who_do_not_wait(world: World) -> None:
    """QueueFull is retryable and leaves the queue as it was."""
    log = world.open(NARROW)
    first = log.append_many([b"x" * 400, b"y" * 400])
    with pytest.raises(QueueFull) as raised:
        log.append(b"z" * 400, block=False)
    assert raised.value.retry_after_s > 0
    first.durable.wait()
    assert log.append(b"z" * 400, block=False).offset == 2


def test_full_queue_makes_append_wait_for_room(world: World) -> None:
    """The thread goes on when the commit before it is over, with the next offset."""
    log = world.open(NARROW)
    gate, first = _fill_queue(world, log)
    blocked = Call(lambda: log.append(b"z" * 400).offset)
    with pytest.raises(QueueFull):
        log.append(b"z" * 400, block=False)
    gate.open()
    assert (first.outcome(), blocked.outcome()) == (0, 2)


def test_full_queue_suspends_a_task_and_not_its_loop(world: World) -> None:
    """Other tasks run on while `append_async` waits for room."""
    log = world.open(NARROW)
    gate, first = _fill_queue(world, log)

    async def append() -> int:
        waiting = asyncio.create_task(log.append_async(b"z" * 400))
        for _ in range(3):  # the loop turns, the task does not get on
            await asyncio.sleep(0)
        assert not waiting.done()
        gate.open()
        return (await asyncio.wait_for(waiting, PATIENCE_S)).offset

    assert asyncio.run(append()) == 2
    assert first.outcome() == 0


def test_nobody_hangs_when_the_log_is_poisoned(world: World) -> None:
    """Blocked appends, readers, flushes and a close all return or raise."""
    log = world.open(NARROW)
    gate, first = _fill_queue(world, log)
    world.files.fail("sync")
    blocked = [
        Call(lambda: log.append(b"z" * 400)),
        Call(lambda: log.append_many([b"z" * 400])),
        Call(lambda: log.append_durable(b"z" * 400)),
        Call(lambda: asyncio.run(log.append_async(b"z" * 400))),
        Call(lambda: log.read(0, follow=True).next_batch()),
        Call(lambda: asyncio.run(log.read(0, follow=True).next_batch_async())),
        Call(log.flush),
        Call(lambda: asyncio.run(log.flush_async())),
    ]
    gate.open()
    assert isinstance(first.outcome(), LogPoisoned)
    assert [type(call.outcome()) for call in blocked] == [LogPoisoned] * len(blocked)
    assert Call(log.close).outcome() is None


def test_close_returns_when_the_commit_under_way_is_poisoned(world: World) -> None:
    """Close waits for the commit, raises what kept it from the disk, and seals nothing."""
    log = world.open()
    gate = world.files.hold_up("sync", name=FIRST)
    fault = world.files.fail("sync", name=FIRST, times=None)
    first = Call(lambda: log.append_durable(b"a"))
    assert gate.reached.wait(PATIENCE_S)
    closing = Call(log.close)
    gate.open()
    assert isinstance(first.outcome(), LogPoisoned)
    assert isinstance(closing.outcome(), LogPoisoned | None)
    assert fault.hits == 1


def _fill_queue(world: World, log: Log) -> tuple[Any, Call]:
    """Holds a first commit up at its sync, with the queue full behind it."""
    gate = world.files.hold_up("sync", name=FIRST)
    first = Call(lambda: log.append_durable(b"x" * 400))
    assert gate.reached.wait(PATIENCE_S)
    log.append(b"y" * 400)
    return gate, first


# --- what closing says ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [(SMALL, True), (INTERVAL, False), (BUFFER, False)],
    ids=["sync", "interval", "buffer"],
)
def test_closing_tells_of_a_failed_sync_unless_everyone_was_told(
    memory: World, settings: LogSettings, told: bool
) -> None:
    """Messages that were acknowledged early may be gone, and nobody waits for them any more."""
    log = memory.open(settings)
    log.append(b"a")
    memory.pool.run()
    memory.files.fail("sync", name="*.wal*")
    log.append(bytes(70 * KIB))
    memory.pool.run()
    assert isinstance(log.failure, LogPoisoned)
    with contextlib.nullcontext() if told else pytest.raises(LogPoisoned):
        log.close()


def test_failed_finishing_at_close_is_left_to_the_next_opening(memory: World) -> None:
    """Every message is synced by then, so nothing is lost and nothing is raised."""
    log = memory.open()
    log.append_durable(b"a")
    memory.files.fail("truncate", name=FIRST)
    log.close()
    assert read(memory.open()) == [b"a"]


def test_checkpoint_that_cannot_be_read_costs_time_only(memory: World) -> None:
    """As if it were damaged."""
    log = memory.open()
    log.append_durable(b"a")
    log.close()
    memory.files.fail("pread", name="log.ckpt")
    assert read(memory.open()) == [b"a"]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_rotation_without_a_descriptor_is_put_off(world: World, error: int) -> None:
    """Nothing is poisoned: who waited sends it again, and it is taken when there is one."""
    log = world.open()
    message = os.urandom(40 * KIB)
    assert log.append_durable(message) == 0
    world.files.fail("create", error, times=2)
    for _ in range(2):
        with pytest.raises(TooManyFiles):
            log.append_durable(message)
    assert log.failure is None
    assert log.append_durable(message) == 1
    assert [each for _, each in log.read()] == [message, message]
