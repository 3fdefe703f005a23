"""The log as its users see it."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

from penstock.log import Environment, Log
from penstock.log.pool import CommitPool
from penstock.metrics import Metrics, names
from penstock.model import Durability, LogSettings
from penstock.model.errors import (
    InvalidArgument,
    LogClosed,
    LogLocked,
    LogPoisoned,
    MessageTooLarge,
    OffsetUnavailable,
)
from tests.log.helpers import SMALL, contents_of, messages, reopen
from tests.patience import PATIENCE_S
from tests.simulation.manual_pool import ManualClock, ManualPool

WAIT_S = PATIENCE_S


def test_offsets_begin_at_zero_and_are_contiguous(tmp_path: Path) -> None:
    """Also over a clean restart."""
    for first in (0, 5, 10):
        with Log.open(tmp_path) as log:
            assert [log.append(b"m").offset for _ in range(5)] == list(range(first, first + 5))


def test_a_durable_message_is_read_after_a_restart(tmp_path: Path) -> None:
    """The round trip that everything else stands on."""
    with Log.open(tmp_path) as log:
        log.append(b"hello").durable.wait()
    assert reopen(tmp_path)[0] == {0: b"hello"}


def test_append_many_takes_consecutive_offsets_and_fails_or_succeeds_together(
    tmp_path: Path,
) -> None:
    """Its offset is the first one's."""
    with Log.open(tmp_path) as log:
        log.append(b"before")
        append = log.append_many([b"a", b"b", b"c"])
        append.durable.wait()
        assert append.offset == 1
        assert contents_of(log) == {0: b"before", 1: b"a", 2: b"b", 3: b"c"}


def test_append_durable_returns_when_the_message_is_readable(tmp_path: Path) -> None:
    """Without any other thread's help."""
    with Log.open(tmp_path, env=Environment(pool=ManualPool(ManualClock()))) as log:
        assert [log.append_durable(b"m") for _ in range(3)] == [0, 1, 2]
        assert log.end_offset == 3


def test_empty_messages_are_messages(tmp_path: Path) -> None:
    """An export request may have no bytes at all."""
    with Log.open(tmp_path) as log:
        log.append_many([b"", b"x", b""]).durable.wait()
    assert reopen(tmp_path)[0] == {0: b"", 1: b"x", 2: b""}


def test_a_message_is_not_shown_before_it_is_synced(tmp_path: Path) -> None:
    """With `sync`, readers see nothing that a power loss could take back."""
    pool = ManualPool(ManualClock())
    with Log.open(tmp_path, env=Environment(pool=pool)) as log:
        append = log.append(b"m")
        assert (log.end_offset, append.durable.done) == (0, False)
        assert log.read().read_batch() is None
        pool.run()
        assert (log.end_offset, append.durable.done) == (1, True)


def test_messages_that_wait_together_share_one_commit(tmp_path: Path) -> None:
    """One fdatasync for all of them."""
    metrics, pool = Metrics(), ManualPool(ManualClock())
    with Log.open(tmp_path, env=Environment(pool=pool, metrics=metrics), name="t") as log:
        appends = [log.append(b"m") for _ in range(100)]
        pool.run()
        assert {append.durable for append in appends} == {appends[0].durable}
        assert metrics.value(names.LOG_COMMITS, "t") == 1


def test_an_event_loop_is_woken_once_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of its tasks wait."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        wakes = 0
        real = loop.call_soon_threadsafe

        def counted(*args: object, **kwargs: object) -> object:
            nonlocal wakes
            wakes += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        pool = ManualPool(ManualClock())
        log = Log.open(tmp_path, env=Environment(pool=pool))

        async def one() -> None:
            await log.append(b"m").durable

        tasks = [asyncio.create_task(one()) for _ in range(200)]
        await asyncio.sleep(0)
        pool.run()
        await asyncio.gather(*tasks)
        log.close()
        return wakes

    assert asyncio.run(main()) == 1


def test_what_a_loop_has_ready_shares_a_commit(tmp_path: Path) -> None:
    """The turn is asked for after the tasks that are ready, not by the first of them."""

    async def main() -> None:
        clock = ManualClock()
        pool, metrics = ManualPool(clock), Metrics()
        log = Log.open(tmp_path, env=Environment(pool=pool, metrics=metrics), name="log")

        async def one() -> None:
            append = await log.append_async(b"m")
            pool.run()  # a thread that commits whatever it is asked for, at once
            await append.durable

        tasks = [asyncio.create_task(one()) for _ in range(20)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        pool.run()
        await asyncio.gather(*tasks)
        assert metrics.value(names.LOG_COMMITS, "log") == 1
        log.close()

    asyncio.run(main())


def test_a_loop_that_ended_keeps_nobody_waiting(tmp_path: Path) -> None:
    """It took the asking for the turn with it; the next append asks again, from wherever."""
    with Log.open(tmp_path) as log:

        async def leave(loop: asyncio.AbstractEventLoop) -> None:
            loop.stop()
            await log.append_async(b"left")

        loop = asyncio.new_event_loop()
        task = loop.create_task(leave(loop))
        loop.run_forever()
        assert task.done()

        async def go_on() -> None:
            async with asyncio.timeout(WAIT_S):
                await (await log.append_async(b"next")).durable

        asyncio.run(go_on())
        loop.close()
        assert contents_of(log) == {0: b"left", 1: b"next"}


def test_a_cancelled_waiter_disturbs_nobody(tmp_path: Path) -> None:
    """Its message still becomes durable, and so do the others'."""

    async def main() -> None:
        pool = ManualPool(ManualClock())
        log = Log.open(tmp_path, env=Environment(pool=pool))
        append = log.append(b"m")

        async def wait() -> None:
            await append.durable

        cancelled, other = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        cancelled.cancel()
        pool.run()
        await other
        assert cancelled.cancelled() or cancelled.cancelling()
        assert contents_of(log) == {0: b"m"}
        log.close()

    asyncio.run(main())


def test_many_threads_and_tasks_lose_and_double_nothing(tmp_path: Path) -> None:
    """Each message is at the offset that its appender was told."""
    told: dict[int, bytes] = {}

    def produce(log: Log, name: str) -> None:
        for number in range(200):
            message = f"{name}-{number}".encode()
            told[log.append_durable(message)] = message

    async def produce_async(log: Log) -> None:
        async def one(name: str) -> None:
            for number in range(100):
                message = f"{name}-{number}".encode()
                append = await log.append_async(message)
                await append.durable
                told[append.offset] = message

        await asyncio.gather(*(one(f"task{n}") for n in range(20)))

    with Log.open(tmp_path, SMALL) as log:
        threads = [threading.Thread(target=produce, args=(log, f"thread{n}")) for n in range(8)]
        for thread in threads:
            thread.start()
        asyncio.run(produce_async(log))
        for thread in threads:
            thread.join(WAIT_S)
        assert contents_of(log) == told
    assert len(told) == 8 * 200 + 20 * 100
    assert reopen(tmp_path)[0] == told


def test_interval_shows_and_acknowledges_before_the_sync(tmp_path: Path) -> None:
    """And syncs by itself when its interval has passed."""
    clock = ManualClock()
    pool = ManualPool(clock)
    settings = LogSettings(durability=Durability.INTERVAL, sync_interval_s=5.0)
    with Log.open(tmp_path, settings, env=Environment(clock=clock, pool=pool)) as log:
        append = log.append(b"m")
        pool.run()
        append.durable.wait(0)
        assert log._has_unsynced()
        clock.advance(5.1)
        pool.run()
        assert not log._has_unsynced()


def test_interval_syncs_at_once_when_enough_was_written(tmp_path: Path) -> None:
    """The bytes at risk are bounded too."""
    pool = ManualPool(ManualClock())
    settings = LogSettings(durability=Durability.INTERVAL, sync_bytes=1000)
    with Log.open(tmp_path, settings, env=Environment(pool=pool)) as log:
        log.append(b"m" * 900)
        pool.run()
        assert log._has_unsynced()
        log.append(b"m" * 900)
        pool.run()
        assert not log._has_unsynced()


def test_buffer_acknowledges_at_once_and_flush_syncs(tmp_path: Path) -> None:
    """What was flushed is on disk; what was not is in the queue."""
    pool = ManualPool(ManualClock())
    with Log.open(
        tmp_path, LogSettings(durability=Durability.BUFFER), env=Environment(pool=pool)
    ) as log:
        assert log.append(b"m").durable.done
        assert log.end_offset == 0
        log.flush()
        assert (log.end_offset, log._has_unsynced()) == (1, False)


def test_a_gathering_commit_waits_for_its_time_or_its_bytes(tmp_path: Path) -> None:
    """`commit_delay_s` and `commit_bytes`."""
    clock = ManualClock()
    pool = ManualPool(clock)
    settings = LogSettings(commit_delay_s=1.0, commit_bytes=500)
    with Log.open(tmp_path, settings, env=Environment(clock=clock, pool=pool)) as log:
        log.append(b"m")
        pool.run()
        assert log.end_offset == 0
        clock.advance(1.1)
        pool.run()
        assert log.end_offset == 1
        log.append(b"m" * 400)
        log.append(b"m" * 400)
        pool.run()
        assert log.end_offset == 3


def test_files_rotate_by_size_and_no_commit_spans_two(tmp_path: Path) -> None:
    """Each file begins with the offset in its name."""
    with Log.open(tmp_path, SMALL) as log:
        for n in range(100):
            log.append_durable(bytes([n]) * 3000)
        sizes = [file.size for file in log.sealed_files]
        assert len(sizes) >= 4
        assert max(sizes) <= SMALL.rotate_bytes + 4096
        assert [file.path.name for file in log.sealed_files] == sorted(
            f"{file.first_offset:020d}.wal" for file in log.sealed_files
        )


def test_an_idle_file_is_finished_when_it_is_old(tmp_path: Path) -> None:
    """By monotonic time, whatever the wall clock does."""
    clock = ManualClock()
    pool = ManualPool(clock)
    with Log.open(
        tmp_path, LogSettings(rotate_s=60), env=Environment(clock=clock, pool=pool)
    ) as log:
        log.append_durable(b"m")
        clock.turn_wall_clock(-1e6)
        for _ in range(3):
            clock.advance(61)
            pool.run()
        assert [file.end_offset for file in log.sealed_files] == [1]
        assert log.append_durable(b"next") == 1


def test_a_busy_file_is_finished_when_it_is_old_too(tmp_path: Path) -> None:
    """The commit that finds it old begins the next one."""
    clock = ManualClock()
    pool = ManualPool(clock)
    with Log.open(
        tmp_path, LogSettings(rotate_s=10), env=Environment(clock=clock, pool=pool)
    ) as log:
        for _ in range(5):
            log.append_durable(b"m")
            clock.advance(6)
        assert [file.end_offset for file in log.sealed_files] == [2, 4]


def test_a_message_over_the_limit_is_refused_and_costs_no_offset(tmp_path: Path) -> None:
    """So are several that do not fit into the queue together."""
    settings = LogSettings(max_message_bytes=100, queue_bytes=300)
    with Log.open(tmp_path, settings) as log:
        for refused in (lambda: log.append(b"m" * 101), lambda: log.append_durable(b"m" * 101)):
            with pytest.raises(MessageTooLarge):
                refused()
        with pytest.raises(MessageTooLarge):
            log.append_many([b"m" * 90] * 4)
        with pytest.raises(InvalidArgument):
            log.append_many([])
        assert log.append_durable(b"m" * 100) == 0


def test_a_closed_log_takes_and_flushes_nothing(tmp_path: Path) -> None:
    """Every way in says so; closing again is fine."""
    log = Log.open(tmp_path)
    log.close()
    log.close()
    for call in (lambda: log.append(b"m"), lambda: log.append_durable(b"m"), log.flush):
        with pytest.raises(LogClosed):
            call()


def test_closing_commits_what_waits(tmp_path: Path) -> None:
    """An append before `close` is in the log after it."""
    log = Log.open(tmp_path, LogSettings(commit_delay_s=3600))
    append = log.append(b"m")
    log.close()
    append.durable.wait()
    assert reopen(tmp_path)[0] == {0: b"m"}


def test_the_async_forms_do_the_same(tmp_path: Path) -> None:
    """append_async, append_many_async, flush_async, close_async, `async for`."""

    async def main() -> list[tuple[int, bytes]]:
        log = Log.open(tmp_path)
        await log.append_async(b"a")
        await log.append_many_async([b"b", b"c"])
        await log.flush_async()
        found = [(m.offset, m.data) async for m in log.read()]
        await log.close_async()
        await log.close_async()
        return found

    assert asyncio.run(main()) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_one_folder_has_one_writer(tmp_path: Path) -> None:
    """The second is refused and changes nothing."""
    with Log.open(tmp_path) as log:
        log.append_durable(b"m")
        with pytest.raises(LogLocked) as refused:
            Log.open(tmp_path)
        assert refused.value.pid == os.getpid()
        assert log.append_durable(b"n") == 1


def test_hundreds_of_logs_share_a_few_threads(tmp_path: Path) -> None:
    """An idle topic costs no thread."""
    pool = CommitPool(threads=2)
    before = threading.active_count()
    logs = [Log.open(tmp_path / str(n), env=Environment(pool=pool)) for n in range(120)]
    commits = [log.append(f"log {n}".encode()).durable for n, log in enumerate(logs)]
    for commit in commits:
        commit.wait(WAIT_S)
    assert threading.active_count() - before <= 3
    assert [contents_of(log) for log in logs] == [{0: f"log {n}".encode()} for n in range(120)]
    for log in logs:
        log.close()


def test_a_forgotten_log_is_not_kept_alive_by_its_timers(tmp_path: Path) -> None:
    """Timers hold a weak reference."""
    import weakref

    log = Log.open(tmp_path, LogSettings(rotate_s=3600, cache_idle_s=3600, retention_s=3600))
    log.append_durable(b"m")
    log.close()
    reference = weakref.ref(log)
    del log
    gc.collect()
    assert reference() is None


def test_an_idle_log_gives_its_cache_back(tmp_path: Path) -> None:
    """Reading goes on from the files."""
    clock = ManualClock()
    pool = ManualPool(clock)
    with Log.open(
        tmp_path, LogSettings(cache_idle_s=30), env=Environment(clock=clock, pool=pool)
    ) as log:
        log.append_durable(b"m")
        assert log.cached(0) is not None
        clock.advance(31)
        pool.run()
        assert log.cached(0) is None
        assert contents_of(log) == {0: b"m"}


def test_memory_only_log_streams_without_a_folder() -> None:
    """The same verbs, bounded by the cache."""
    with Log.in_memory(LogSettings(cache_bytes=10_000)) as log:
        for message in messages(50):
            log.append_durable(message)
        assert contents_of(log) == dict(enumerate(messages(50)))
        log.append_many([b"m" * 900] * 10).durable.wait()
        assert log.start_offset > 0
        with pytest.raises(OffsetUnavailable):
            log.read(0)


def test_retention_removes_whole_files_below_the_floor_only(tmp_path: Path) -> None:
    """And readers then begin behind them."""
    settings = LogSettings(rotate_bytes=64 * 1024, retention_bytes=0)
    with Log.open(tmp_path, settings) as log:
        for n in range(120):
            log.append_durable(bytes([n]) * 3000)
        assert log.enforce_retention() == 0
        floor = log.sealed_files[1].end_offset + 3
        log.set_floor(floor)
        log.enforce_retention()
        assert log.start_offset == log.sealed_files[0].first_offset <= floor
        assert log.start_offset > 0
        assert min(contents_of(log)) == log.start_offset
        with pytest.raises(OffsetUnavailable) as gone:
            log.read(0)
        assert gone.value.earliest == log.start_offset


@pytest.mark.parametrize("checkpoint", [True, False])
def test_offsets_go_on_after_retention_removed_everything(tmp_path: Path, checkpoint: bool) -> None:
    """With or without the checkpoint."""
    clock = ManualClock()
    pool = ManualPool(clock)
    settings = LogSettings(retention_bytes=0, rotate_s=10)
    with Log.open(tmp_path, settings, env=Environment(clock=clock, pool=pool)) as log:
        log.append_many([b"m"] * 7).durable.wait()
        clock.advance(11)
        pool.run()
        log.set_floor(7)
        assert log.enforce_retention() == 1
        assert (log.start_offset, log.end_offset, contents_of(log)) == (7, 7, {})
    if not checkpoint:
        (tmp_path / "log.ckpt").unlink()
    with Log.open(tmp_path) as log:
        assert log.append_durable(b"next") == 7
        assert log.lost == ()


def test_a_wall_clock_that_goes_back_removes_nothing_early(tmp_path: Path) -> None:
    """Retention by age only ever waits longer."""
    clock = ManualClock()
    pool = ManualPool(clock)
    settings = LogSettings(rotate_bytes=64 * 1024, retention_s=100, rotate_s=None)
    with Log.open(tmp_path, settings, env=Environment(clock=clock, pool=pool)) as log:
        for n in range(60):
            log.append_durable(bytes([n]) * 3000)
        log.set_floor(60)
        finished = len(log.sealed_files)
        clock.turn_wall_clock(-10_000)
        assert log.enforce_retention() == 0
        clock.advance(10_200)
        assert log.enforce_retention() == finished


def test_reading_from_nowhere_is_a_clear_error(tmp_path: Path) -> None:
    """Beyond the end, before the start, or no place at all."""
    with Log.open(tmp_path) as log:
        log.append_durable(b"m")
        for start in (-1, 2):
            with pytest.raises(OffsetUnavailable) as error:
                log.read(start)
            assert (error.value.earliest, error.value.end) == (0, 1)
        for nonsense in ("middle", None, 1.5, True):
            with pytest.raises(InvalidArgument):
                log.read(nonsense)


def test_what_is_no_message_is_refused_and_poisons_nothing(tmp_path: Path) -> None:
    """Bad input costs its sender a clear error, and nobody else anything."""
    with Log.open(tmp_path) as log:
        for nonsense in ("text", 5, None, [b"m"]):
            for append in (log.append, log.append_durable, lambda m: log.append_many([m])):
                with pytest.raises(InvalidArgument, match="a message is bytes"):
                    append(nonsense)
        assert log.append_durable(b"m") == 0


def test_a_buffer_that_its_owner_changes_later_is_kept_as_it_was(tmp_path: Path) -> None:
    """Mutable buffers are copied when they are appended."""
    with Log.open(tmp_path) as log:
        buffer = bytearray(b"before")
        appends = [log.append(buffer), log.append_many([memoryview(buffer)])]
        buffer[:] = b"after!"
        for append in appends:
            append.durable.wait()
        assert contents_of(log) == {0: b"before", 1: b"before"}


def test_an_interrupted_commit_leaves_nobody_waiting(tmp_path: Path) -> None:
    """Ctrl-C in the thread that commits is raised there, and poisons the log for the others."""
    log = Log.open(tmp_path, env=Environment(pool=ManualPool(ManualClock())))
    log.append_durable(b"before")

    def interrupted() -> None:
        raise KeyboardInterrupt

    log._fileset.sync = interrupted
    other = log.append(b"other")
    with pytest.raises(KeyboardInterrupt):
        other.durable.wait()
    with pytest.raises(LogPoisoned):
        other.durable.wait(WAIT_S)
    with pytest.raises(LogPoisoned):
        log.append(b"after")
    log.close()
    assert reopen(tmp_path)[0][0] == b"before"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_can_open_logs_of_its_own_but_not_use_its_parents(tmp_path: Path) -> None:
    """The parent's file, lock and threads are the parent's."""
    log = Log.open(tmp_path / "parent")
    log.append(b"parent").durable.wait()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(LogClosed):
                log.append_durable(b"child")
            log.close()
            with Log.open(tmp_path / "child") as own:
                own.append(b"child").durable.wait(WAIT_S)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(LogLocked):
        Log.open(tmp_path / "parent")
    assert log.append_durable(b"parent") == 1
    log.close()
    assert reopen(tmp_path / "parent")[0] == {0: b"parent", 1: b"parent"}


def test_a_cancelled_close_still_closes(tmp_path: Path) -> None:
    """Nobody could do it later."""

    async def main() -> None:
        pool = ManualPool(ManualClock())
        log = Log.open(tmp_path, env=Environment(pool=pool))
        log.append(b"m")
        closing = asyncio.create_task(log.close_async())
        await asyncio.sleep(0)
        closing.cancel()
        pool.run()
        await log.close_async()

    asyncio.run(main())
    assert reopen(tmp_path)[0] == {0: b"m"}


def test_an_endless_time_limit_stops_no_timer(tmp_path: Path) -> None:
    """Settings may say that something never happens."""
    pool = CommitPool(threads=1)
    never = float("inf")
    with Log.open(
        tmp_path / "a", LogSettings(rotate_s=never, cache_idle_s=never), env=Environment(pool=pool)
    ) as log:
        log.append_durable(b"m")
        with Log.open(
            tmp_path / "b", LogSettings(commit_delay_s=0.01), env=Environment(pool=pool)
        ) as other:
            other.append(b"m").durable.wait(WAIT_S)
