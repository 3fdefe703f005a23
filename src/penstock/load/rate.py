"""When each unit is due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.load.plan import Plan
    from penstock.model.clock import Clock


class Pace:
    """A schedule that does not wait for answers: who is late hurries, and the delay is measured.

    A unit is due when the shop has made its spans, so the first one is not due at once. The
    processes take turns, so that their requests are spread evenly.
    """

    def __init__(
        self,
        plan: Plan,
        process: int,
        clock: Clock,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        rate = plan.spans_per_second
        self._clock = clock
        self._interval_s = plan.batch * plan.processes / rate if rate else 0.0
        self._first_s = self._interval_s * (process + 1) / plan.processes
        self._seconds = plan.seconds
        self._sleep = sleep
        self.began = clock.monotonic()

    async def reach(self, number: int) -> float | None:
        """Waits until the unit is due; returns when that was, or None when the time is over."""
        due = self._first_s + number * self._interval_s
        now = self._clock.monotonic() - self.began
        if self._seconds is not None and (due > self._seconds or now >= self._seconds):
            await self._sleep(self._seconds - now)
            return None
        if due > now:
            await self._sleep(due - now)
        return self.began + (due if self._interval_s else now)
