"""Background work that never overlaps itself."""

from __future__ import annotations

import os
import threading

import pytest

from penstock.log.pool import CommitPool, Job, shared_workers
from tests.simulation.manual_pool import ManualClock, ManualPool
from tests.store.helpers import WAIT_S


class Work:
    """Waits at each run until it is let through."""

    def __init__(self) -> None:
        self.runs = 0
        self.overlaps = 0
        self.began = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self._busy = threading.Lock()

    def __call__(self) -> None:
        """One run."""
        self.overlaps += not self._busy.acquire(blocking=False)
        self.runs += 1
        self.began.release()
        assert self.may_end.acquire(timeout=WAIT_S)
        self._busy.release()


def test_asked_during_a_run_it_runs_once_more_and_never_beside_itself() -> None:
    """However often it is asked: nothing that was there when it was asked is missed."""
    work = Work()
    job = Job(CommitPool(4), work)
    job.ask()
    assert work.began.acquire(timeout=WAIT_S)
    for _ in range(10):
        job.ask()
    work.may_end.release(10)
    assert work.began.acquire(timeout=WAIT_S)
    job.stop()
    assert (work.runs, work.overlaps) == (2, 0)


def test_asked_before_it_began_it_runs_once() -> None:
    """Everything is there when it runs."""
    pool, runs = ManualPool(ManualClock()), []
    job = Job(pool, lambda: runs.append(1))
    for _ in range(5):
        job.ask()
    pool.run()
    assert len(runs) == 1
    job.ask()
    pool.run()
    assert len(runs) == 2


def test_asked_by_itself_it_runs_again() -> None:
    """A run may find that there is more to do."""
    pool, runs = ManualPool(ManualClock()), []

    def run() -> None:
        runs.append(1)
        if len(runs) < 3:
            job.ask()

    job = Job(pool, run)
    job.ask()
    pool.run()
    assert len(runs) == 3


def test_stopping_waits_for_the_run_under_way_and_none_begins_after() -> None:
    """What it used may be closed then."""
    work = Work()
    job = Job(CommitPool(2), work)
    job.ask()
    assert work.began.acquire(timeout=WAIT_S)
    stopped = threading.Event()
    stopper = threading.Thread(target=lambda: (job.stop(), stopped.set()))
    stopper.start()
    job.ask()
    assert not stopped.is_set()
    work.may_end.release(10)
    assert stopped.wait(WAIT_S)
    stopper.join()
    job.ask()
    assert work.runs <= 2


def test_a_job_that_was_never_asked_stops_at_once() -> None:
    """There is nothing to wait for."""
    runs: list[int] = []
    job = Job(ManualPool(ManualClock()), lambda: runs.append(1))
    job.stop()
    job.ask()
    assert runs == []


def test_the_workers_are_shared_and_come_back_after_a_fork() -> None:
    """A forked child has none of its parent's threads, and starts its own."""
    assert shared_workers() is shared_workers()
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork here")
    done = threading.Event()
    shared_workers().submit(done.set)
    assert done.wait(WAIT_S)
    child = os.fork()
    if child == 0:
        again = threading.Event()
        shared_workers().submit(again.set)
        os._exit(0 if again.wait(WAIT_S) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
