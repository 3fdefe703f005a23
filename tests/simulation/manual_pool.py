"""A pool and a clock that stand still until a test moves them: one thread, one order of events."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ManualClock:
    """Both clocks, moved by hand."""

    def __init__(self, wall_s: float = 1_700_000_000.0) -> None:
        self._wall_ns = int(wall_s * 1e9)
        self._monotonic = 1000.0

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, or what the test made of it."""
        return self._wall_ns

    def monotonic(self) -> float:
        """Seconds since some start; never goes back."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self._wall_ns += int(seconds * 1e9)
        self._monotonic += seconds

    def turn_wall_clock(self, seconds: float) -> None:
        """Somebody sets the wall clock forward, or back with less than 0."""
        self._wall_ns += int(seconds * 1e9)


class ManualPool:
    """Queues jobs and timers; `run` runs what is due, in the calling thread."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._jobs: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def submit(self, job: Callable[[], None]) -> None:
        """Queues the job."""
        self._jobs.append(job)

    def call_later(self, delay_s: float, job: Callable[[], None]) -> None:
        """Queues the job for when the clock has come that far."""
        due = self._clock.monotonic() + delay_s
        heapq.heappush(self._timers, (due, next(self._order), job))

    def run(self) -> None:
        """Runs jobs and due timers, and those that they bring, until none is left."""
        while self._jobs or self._timer_is_due:
            self._jobs.popleft()() if self._jobs else self.run_timers()

    def run_timers(self) -> None:
        """Runs the due timers alone; the jobs that they bring stay queued."""
        while self._timer_is_due:
            heapq.heappop(self._timers)[2]()

    @property
    def _timer_is_due(self) -> bool:
        return bool(self._timers) and self._timers[0][0] <= self._clock.monotonic()
