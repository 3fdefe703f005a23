"""Background work: a few threads for any number of logs and stores, timers, and jobs.

Idle logs cost no thread: a log hands itself in when it has something to commit. The threads start
with the first job and end with the process.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)

_LONGEST_WAIT_S = 3600.0  # Condition.wait refuses centuries
DEFAULT_THREADS: Final = 8
"""An fdatasync holds its thread but no core: more threads than cores overlap their waits."""
WORKERS: Final = 4
"""Sealing waits for the disk and Arrow releases the interpreter's lock: more than cores overlap."""
UPKEEP_THREADS: Final = 2


class Pool(Protocol):
    """Runs jobs soon, or later. Jobs catch their own errors."""

    def submit(self, job: Callable[[], None]) -> None:
        """Runs the job on some thread."""
        ...

    def call_later(self, delay_s: float, job: Callable[[], None]) -> None:
        """Runs the job on some thread after the delay."""
        ...


class CommitPool:
    """The threads."""

    def __init__(self, threads: int = DEFAULT_THREADS, *, name: str = "penstock-commit") -> None:
        self._wanted = threads
        self._name = name
        self.forget_threads()

    def forget_threads(self) -> None:
        """Begins anew: a forked child has none of its parent's threads."""
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._started = False
        self._start_lock = threading.Lock()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_change = threading.Condition()
        self._order = itertools.count()

    def submit(self, job: Callable[[], None]) -> None:
        """Runs the job on a commit thread."""
        if not self._started:
            self._start()
        self._jobs.put(job)

    def call_later(self, delay_s: float, job: Callable[[], None]) -> None:
        """Runs the job on a commit thread after the delay."""
        if not self._started:
            self._start()
        with self._timer_change:
            heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._order), job))
            self._timer_change.notify()

    def _start(self) -> None:
        with self._start_lock:
            if self._started:
                return
            for number in range(self._wanted):
                name = f"{self._name}-{number}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
            threading.Thread(
                target=self._keep_time, name=f"{self._name}-timer", daemon=True
            ).start()
            self._started = True

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception:  # noqa: BLE001 - one log's trouble must not end the thread of all
                _LOG.exception("a background job failed")
            del job  # an idle thread keeps no log alive

    def _keep_time(self) -> None:
        while True:
            with self._timer_change:
                while not self._timers or (wait := self._timers[0][0] - time.monotonic()) > 0:
                    self._timer_change.wait(min(wait, _LONGEST_WAIT_S) if self._timers else None)
                _, _, job = heapq.heappop(self._timers)
            self._jobs.put(job)
            del job


class Timers:
    """A log's timers: at most one of a kind runs at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._running: set[str] = set()

    def start(self, kind: str, delay_s: float, method: Callable[[], None]) -> None:
        """Calls the bound method after the delay, unless its object is gone by then."""
        if kind in self._running:
            return
        self._running.add(kind)
        reference, running = weakref.WeakMethod(method), self._running

        def fire() -> None:
            running.discard(kind)
            if (alive := reference()) is not None:
                alive()

        self._pool.call_later(delay_s, fire)


class Job:
    """Runs a function in the background whenever asked, one run at a time.

    Asked during a run, it runs once more: nothing that was there when it was asked is missed. That
    run goes to the end of the pool's queue: who always has more to do keeps nobody from his turn.
    """

    def __init__(self, pool: Pool, run: Callable[[], None]) -> None:
        self._pool = pool
        self._run = run
        self._lock = threading.Lock()
        self._asked = False
        self._running = False
        self._stopped = False
        self._idle = threading.Event()
        self._idle.set()

    def ask(self) -> None:
        """Soon. Quick, and safe from any thread."""
        with self._lock:
            if self._asked or self._stopped:
                return
            self._asked = True
            if self._running:
                return
            self._running = True
            self._idle.clear()
        self._pool.submit(self._work)

    def stop(self) -> None:
        """Returns when the run under way is over; none begins after."""
        with self._lock:
            self._stopped = True
        self._idle.wait()

    def _work(self) -> None:
        with self._lock:
            is_over = self._stopped
            self._asked = False
        if not is_over:
            self._run()
        with self._lock:
            if self._asked and not self._stopped:
                again = True
            else:
                again = self._asked = self._running = False
                self._idle.set()
        if again:
            self._pool.submit(self._work)


_shared = CommitPool()
_workers = CommitPool(WORKERS, name="penstock-store")
_upkeep = CommitPool(UPKEEP_THREADS, name="penstock-upkeep")
if hasattr(os, "register_at_fork"):
    for _each in (_shared, _workers, _upkeep):
        os.register_at_fork(after_in_child=_each.forget_threads)


def shared_pool() -> CommitPool:
    """The threads of this process that commit."""
    return _shared


def shared_workers() -> CommitPool:
    """Those that fill and seal for every store, in turns."""
    return _workers


def shared_upkeep() -> CommitPool:
    """Those that clean up and wake."""
    return _upkeep
