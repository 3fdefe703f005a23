"""Background work of a store: jobs that never overlap themselves, on a few shared threads."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from penstock.log.pool import CommitPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log.pool import Pool

WORKERS: Final = 4
"""Sealing waits for the disk and Arrow releases the interpreter's lock: more than cores overlap."""
UPKEEP_THREADS: Final = 2

_workers = CommitPool(WORKERS, name="penstock-store")
_upkeep = CommitPool(UPKEEP_THREADS, name="penstock-upkeep")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.forget_threads)
    os.register_at_fork(after_in_child=_upkeep.forget_threads)


def shared_workers() -> CommitPool:
    """The threads that fill and seal for every store of this process, in turns."""
    return _workers


def shared_upkeep() -> CommitPool:
    """Those that clean up and wake: room on disk must not wait for a backlog to be sealed."""
    return _upkeep


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
        self._timed = False
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

    def ask_later(self, delay_s: float) -> None:
        """After the delay, or sooner when a shorter one is already running."""
        if self._timed or self._stopped:
            return
        self._timed = True
        self._pool.call_later(delay_s, self._time_is_up)

    def stop(self) -> None:
        """Returns when the run under way is over; none begins after."""
        with self._lock:
            self._stopped = True
        self._idle.wait()

    def _time_is_up(self) -> None:
        self._timed = False
        self.ask()

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
