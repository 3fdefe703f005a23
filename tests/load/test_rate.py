"""Units are due at an even rate, and nothing is due when the time is over."""

from __future__ import annotations

import asyncio

from penstock.load.plan import Plan
from penstock.load.rate import Pace
from tests.simulation.manual_pool import ManualClock


class Schedule:
    """A pace whose waiting moves the clock."""

    def __init__(self, process: int = 0, **settings: object) -> None:
        self.clock = ManualClock()
        plan = Plan(batch=100, **settings)  # type: ignore[arg-type]
        self._pace = Pace(plan, process, self.clock, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.clock.advance(max(0.0, seconds))

    def reach(self, number: int) -> float | None:
        """When the unit was due, in seconds from the beginning."""
        due = asyncio.run(self._pace.reach(number))
        return None if due is None else round(due - self._pace.began, 6)

    @property
    def passed_s(self) -> float:
        """Since the beginning."""
        return round(self.clock.monotonic() - self._pace.began, 6)


def test_units_are_due_one_interval_after_the_other() -> None:
    """100 spans at 1000 a second: every tenth of a second, beginning with the first."""
    schedule = Schedule(spans_per_second=1000)
    assert [schedule.reach(number) for number in range(3)] == [0.1, 0.2, 0.3]
    assert schedule.passed_s == 0.3


def test_who_is_late_does_not_wait_and_is_due_when_it_was() -> None:
    """So that the delay is in the latency."""
    schedule = Schedule(spans_per_second=1000)
    schedule.clock.advance(5)
    assert schedule.reach(0) == 0.1
    assert schedule.passed_s == 5


def test_processes_take_turns() -> None:
    """Two of them have half of the rate each, a half interval apart."""
    first = Schedule(0, spans_per_second=1000, processes=2)
    second = Schedule(1, spans_per_second=1000, processes=2)
    assert [first.reach(0), second.reach(0), first.reach(1), second.reach(1)] == [
        0.1,
        0.2,
        0.3,
        0.4,
    ]


def test_the_end_comes_after_the_time_and_not_before() -> None:
    """The last unit is due at the end itself; then the rest of the time is waited for."""
    schedule = Schedule(spans_per_second=1000, seconds=0.25)
    assert [schedule.reach(number) for number in range(3)] == [0.1, 0.2, None]
    assert schedule.passed_s == 0.25


def test_without_a_rate_units_are_due_at_once_until_the_end() -> None:
    """As fast as the server answers."""
    schedule = Schedule(seconds=2)
    assert schedule.reach(0) == 0
    schedule.clock.advance(1.5)
    assert schedule.reach(1) == 1.5
    schedule.clock.advance(1)
    assert schedule.reach(2) is None


def test_a_count_has_no_end_in_time() -> None:
    """Whoever counts spans waits for them."""
    schedule = Schedule(spans_per_second=1000, seconds=None, spans=10**9)
    assert schedule.reach(10**6) == 100_000.1
