"""The small parts: cache, commit, checkpoint, retention, pool."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import pool as pools
from penstock.log.cache import Cache
from penstock.log.checkpoint import decode_checkpoint, encode_checkpoint
from penstock.log.commit import Commit
from penstock.log.fileset import removable
from penstock.log.inventory import LogFile, file_name, first_offset_of
from penstock.log.pool import CommitPool
from penstock.model import LogSettings
from penstock.model.errors import Damaged, DiskFull, UnsupportedVersion
from tests.patience import PATIENCE_S

FOLDER = Path("folder")
WAIT_S = PATIENCE_S


def log_file(first: int, end: int, size: int = 100, sealed_at_s: float = 0) -> LogFile:
    """A sealed file that exists in name only."""
    return LogFile(FOLDER / file_name(first), first, end, size, int(sealed_at_s * 1e9))


# --- cache ---------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 6), max_size=40), st.integers(0, 60))
def test_cache_holds_the_newest_commits_within_its_limit(counts: list[int], limit: int) -> None:
    """Whatever it still has, it has right; and it never has more than its limit."""
    cache, offset = Cache(limit), 0
    for count in counts:
        cache.add(offset, [bytes([(offset + n) % 256]) for n in range(count)], count)
        offset += count
        assert cache.size <= limit
    first = cache.first_offset
    for wanted in range(offset + 2):
        batch = cache.get(wanted)
        assert (batch is not None) == (first is not None and first <= wanted < offset)
        if batch is not None:
            expected = [bytes([(wanted + n) % 256]) for n in range(len(batch.messages))]
            assert (batch.first_offset, batch.messages) == (wanted, expected)


def test_cache_hands_out_large_commits_in_pieces() -> None:
    """A reader gets about a mebibyte at a time."""
    cache = Cache(10**8)
    cache.add(0, [b"x" * 1000] * 10_000, 10**7)
    batch = cache.get(5)
    assert batch is not None
    assert 900 <= len(batch.messages) <= 1100


# --- commit --------------------------------------------------------------------------------------


def test_commit_wakes_threads_and_tasks_of_several_loops() -> None:
    """Everyone who waits hears of it."""
    commit, woken = Commit(), list[str]()
    ready = threading.Barrier(4)

    async def wait_as_task() -> None:
        ready.wait(WAIT_S)
        await commit
        woken.append("task")

    def wait_as_thread() -> None:
        ready.wait(WAIT_S)
        commit.wait(WAIT_S)
        woken.append("thread")

    targets = [lambda: asyncio.run(wait_as_task())] * 2 + [wait_as_thread]
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    ready.wait(WAIT_S)
    commit.resolve()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(woken) == ["task", "task", "thread"]


def test_commit_raises_a_copy_of_its_error_for_each_waiter() -> None:
    """With its attributes, and without sharing a traceback."""
    commit = Commit()
    commit.resolve(DiskFull("full", retry_after_s=7))
    raised = []
    for _ in range(2):
        with pytest.raises(DiskFull) as error:
            commit.wait()
        raised.append(error.value)
    assert raised[0] is not raised[1]
    assert [error.retry_after_s for error in raised] == [7, 7]


def test_waiting_with_a_timeout_can_be_repeated() -> None:
    """TimeoutError says that it is open, not that it failed."""
    commit = Commit()
    with pytest.raises(TimeoutError):
        commit.wait(0.001)
    commit.resolve()
    commit.wait(0.001)


def test_abandoned_waits_leave_nothing_behind() -> None:
    """A reader that polls an idle log waits for the same commit again and again."""
    commit = Commit()

    async def abandon() -> None:
        for _ in range(3000):
            task = asyncio.create_task(commit.settle_async())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)

    for _ in range(100):
        assert not commit.settle(0)
    asyncio.run(abandon())
    assert len(commit._sleepers) == 0
    assert sum(map(len, commit._tasks.values())) <= 1024


# --- checkpoint ----------------------------------------------------------------------------------

FILES = (log_file(0, 10), log_file(10, 25, sealed_at_s=3))
LOG_ID = uuid.UUID(int=5)


def test_checkpoint_survives_a_round_trip() -> None:
    """Losses included."""
    lossy = LogFile(FOLDER / file_name(25), 25, 40, 7, 8, lost=((30, 32),))
    found = decode_checkpoint(encode_checkpoint(LOG_ID, 44, [*FILES, lossy], 9), FOLDER)
    assert (found.log_id, found.start_offset, found.next_offset) == (LOG_ID, 0, 44)
    assert found.files == (*FILES, lossy)


def test_every_changed_byte_of_a_checkpoint_is_noticed() -> None:
    """Or changes nothing that it says."""
    data = encode_checkpoint(LOG_ID, 25, FILES, 9)
    good = decode_checkpoint(data, FOLDER)
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            try:
                assert decode_checkpoint(bytes(changed), FOLDER) == good
            except (Damaged, UnsupportedVersion):
                continue


# --- retention -----------------------------------------------------------------------------------

OLD = [log_file(n * 10, n * 10 + 10, sealed_at_s=n * 100) for n in range(5)]


@pytest.mark.parametrize(
    ("floor", "settings", "now_s", "expected"),
    [
        (50, LogSettings(), 10**6, 0),
        (0, LogSettings(retention_bytes=0), 0, 0),
        (50, LogSettings(retention_bytes=0), 0, 5),
        (29, LogSettings(retention_bytes=0), 0, 2),
        (30, LogSettings(retention_bytes=0), 0, 3),
        (50, LogSettings(retention_bytes=300), 0, 2),
        (50, LogSettings(retention_s=150), 400, 3),
        (50, LogSettings(retention_s=150), -(10**6), 0),
        (10, LogSettings(retention_s=150), 10**6, 1),
        (50, LogSettings(retention_s=10**9, retention_bytes=250), 400, 3),
    ],
)
def test_files_go_from_the_oldest_on_below_the_floor(
    floor: int, settings: LogSettings, now_s: int, expected: int
) -> None:
    """By age or by size, never past a file that stays."""
    assert removable(OLD, floor, 500, now_s * 10**9, settings) == expected


# --- names and pool ------------------------------------------------------------------------------


def test_file_names_sort_as_their_offsets() -> None:
    """As text, up to the largest offset."""
    offsets = [0, 9, 10, 99, 2**40, 2**63 - 1]
    names = [file_name(offset) for offset in offsets]
    assert names == sorted(names)
    assert [first_offset_of(name) for name in names] == offsets
    for name in ("1.wal", f"{2**63}.wal", "99999999999999999999.wal"):
        assert first_offset_of(name) is None


def test_a_failing_job_does_not_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the next job runs."""
    pool, done = CommitPool(threads=1), threading.Event()
    pool.submit(lambda: 1 / 0)
    pool.submit(done.set)
    assert done.wait(WAIT_S)
    assert "a background job failed" in caplog.text


def test_timers_fire_in_the_order_of_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order in which they were set, here in one moment."""
    pool, order, done = CommitPool(threads=1), list[str](), threading.Event()
    now = time.monotonic()
    with monkeypatch.context() as patched:
        patched.setattr(pools, "time", SimpleNamespace(monotonic=lambda: now))
        pool.call_later(0.05, lambda: (order.append("late"), done.set()))
        pool.call_later(0.01, lambda: order.append("early"))
    assert done.wait(WAIT_S)
    assert order == ["early", "late"]
