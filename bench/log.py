"""The benchmark of the durable log, with messages of 1 KB. The cases stand as in the table."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import harness
from harness import Row, Run
from log_baselines import (
    MESSAGES,
    growing_floor,
    nats_jetstream,
    preallocated_floor,
    rate_of,
    rate_of_callers,
    rate_of_tasks,
    redis_streams,
    redis_streams_bare,
    sqlite,
)
from log_files import memory_over_time, recovery, sequential_read
from penstock.log import Environment, Log
from penstock.metrics import Metrics, names
from penstock.model.settings import LogSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLOOR = "floor"
ASYNC, BLOCKING, THREADS, STDLIB = "asyncio", "blocking", "threads", "asyncio without uvloop"
REDIS = "Redis Streams, fsync always, redis-py"
REDIS_BARE = "Redis Streams, fsync always, bare protocol"
SQLITE = "SQLite WAL FULL, 64 a transaction"
NATS = "NATS JetStream, sync_interval always"

BURST = [message for _ in range(20) for message in MESSAGES]
"""20 MB: fits into the queue, so that no append has to wait for the disk."""
TOPICS = 300


def append_without_waiting(run: Run) -> Iterator[Row]:
    """Bursts into the queue; it is emptied between them, which is not timed."""
    with _log(run, LogSettings(queue_bytes=32 * 2**20)) as log:
        _burst_rate(log)
        found = run.medians({"rate": lambda: _burst_rate(log), "p99": lambda: _burst_p99_us(log)})
    yield Row("append without waiting", found["rate"], "msg/s", target=500_000)
    yield Row("append without waiting, p99", found["p99"], "µs", target=50, better="lower")


def one_caller(run: Run) -> Iterator[Row]:
    """Every message waits for its own sync, so the disk decides."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(_log(run))
        runner = stack.enter_context(harness.event_loop())
        messages = itertools.cycle(MESSAGES)
        found = run.medians(
            {
                FLOOR: stack.enter_context(preallocated_floor(run)),
                BLOCKING: lambda: rate_of(run, lambda: log.append_durable(next(messages))),
                ASYNC: lambda: runner.run(_durable_rate(run, log, 1)),
                "growing": stack.enter_context(growing_floor(run)),
            }
        )
    floor = found[FLOOR]
    yield Row("floor: 4 KB write + fdatasync", floor, "sync/s")
    yield Row("floor, growing the file", found["growing"], "sync/s", FLOOR, floor)
    yield Row("durable, 1 caller", found[BLOCKING], "msg/s", FLOOR, floor, target=0.8)
    yield Row("durable, 1 asyncio caller", found[ASYNC], "msg/s", FLOOR, floor)


def sixty_four_callers(run: Run) -> Iterator[Row]:
    """Group commit against other systems that have it."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(_log(run))
        runner = stack.enter_context(harness.event_loop())
        baselines = {
            REDIS: redis_streams(run),
            REDIS_BARE: redis_streams_bare(run),
            SQLITE: sqlite(run),
            NATS: nats_jetstream(run),
        }
        measures = {
            ASYNC: lambda: runner.run(_durable_rate(run, log, 64)),
            THREADS: lambda: _rate_of_threads(run, log, 64),
        }
        found = run.medians(measures | run.start(stack, baselines))
    for baseline, target in {REDIS: 3.0, REDIS_BARE: 3.0, SQLITE: 1.2, NATS: None}.items():
        figures = (found[ASYNC], "msg/s", baseline, found.get(baseline))
        yield Row("durable, 64 callers", *figures, target=target)
    yield Row("durable, 64 threads", found[THREADS], "msg/s")


def five_hundred_and_twelve_callers(run: Run) -> Iterator[Row]:
    """As many callers as a busy server has."""
    metrics = Metrics()
    with _log(run, metrics=metrics) as log, harness.event_loop() as runner:
        found = run.medians(
            {
                ASYNC: lambda: runner.run(_durable_rate(run, log, 512)),
                STDLIB: lambda: asyncio.run(_durable_rate(run, log, 512)),
            }
        )
        messages = metrics.value(names.LOG_MESSAGES, topic=log.name)
        commits = metrics.value(names.LOG_COMMITS, topic=log.name)
    yield Row("durable, 512 callers", found[ASYNC], "msg/s", target=250_000)
    yield Row("durable, 512 callers, asyncio's own loop", found[STDLIB], "msg/s")
    yield Row("durable, 512 callers, each sync", messages / commits, "msg", target=60)


def three_hundred_topics(run: Run) -> Iterator[Row]:
    """Nothing to group: every topic has a file and one caller of its own."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(run.folder())
        logs = [stack.enter_context(Log.open(folder / str(topic))) for topic in range(TOPICS)]
        sends = [lambda message, to=log: to.append(message).durable for log in logs]
        runner = stack.enter_context(harness.event_loop())
        found = run.medians(
            {
                FLOOR: stack.enter_context(preallocated_floor(run)),
                ASYNC: lambda: runner.run(rate_of_callers(run, sends)),
            }
        )
    yield Row(f"durable, {TOPICS} topics", found[ASYNC], "msg/s", FLOOR, found[FLOOR])


def idle_topics(run: Run) -> Iterator[Row]:
    """What an open topic costs that nobody uses."""
    with run.folder() as folder:
        threads, resident = harness.in_child(_open_idle_topics, folder)
    yield Row(f"threads for {TOPICS} topics", threads, "threads", better="lower")
    yield Row("memory of an idle topic", resident / TOPICS / 1024, "KiB", better="lower")


@contextlib.contextmanager
def _log(
    run: Run, settings: LogSettings | None = None, metrics: Metrics | None = None
) -> Iterator[Log]:
    env = None if metrics is None else Environment(metrics=metrics)
    with run.folder() as folder, Log.open(folder, settings, env=env) as log:
        yield log


def _burst_rate(log: Log) -> float:
    append = log.append
    started = time.perf_counter()
    for message in BURST:
        append(message)
    took = time.perf_counter() - started
    log.flush()
    return len(BURST) / took


def _burst_p99_us(log: Log) -> float:
    append, clock = log.append, time.perf_counter_ns
    took_ns = []
    for message in BURST:
        before = clock()
        append(message)
        took_ns.append(clock() - before)
    log.flush()
    return sorted(took_ns)[len(took_ns) * 99 // 100] / 1000


async def _durable_rate(run: Run, log: Log, callers: int) -> float:
    return await rate_of_tasks(run, [lambda over: _append_durably(log, over)] * callers)


async def _append_durably(log: Log, over: asyncio.Event) -> int:
    append, is_over, count = log.append, over.is_set, 0
    for message in itertools.cycle(MESSAGES):
        if is_over():
            break
        await append(message).durable
        count += 1
    return count


def _rate_of_threads(run: Run, log: Log, callers: int) -> float:
    over = threading.Event()
    with ThreadPoolExecutor(callers) as threads:
        started = time.perf_counter()
        counts = [threads.submit(_append_until, over, log) for _ in range(callers)]
        try:
            time.sleep(run.slice_s)
        finally:
            over.set()
        return sum(count.result() for count in counts) / (time.perf_counter() - started)


def _append_until(over: threading.Event, log: Log) -> int:
    count = 0
    for message in itertools.cycle(MESSAGES):
        if over.is_set():
            break
        log.append_durable(message)
        count += 1
    return count


def _open_idle_topics(folder: Path) -> tuple[int, int]:
    """Threads and bytes of memory that the topics need beyond the first one."""
    threads = threading.active_count()
    with contextlib.ExitStack() as stack:
        stack.enter_context(Log.open(folder / "first")).append_durable(MESSAGES[0])
        before = harness.resident_bytes()
        for topic in range(TOPICS):
            stack.enter_context(Log.open(folder / str(topic)))
        return threading.active_count() - threads, harness.resident_bytes() - before


CASES = [
    append_without_waiting,
    one_caller,
    sixty_four_callers,
    five_hundred_and_twelve_callers,
    three_hundred_topics,
    idle_topics,
    sequential_read,
    recovery,
    memory_over_time,
]

if __name__ == "__main__":
    harness.main("log", CASES)
