"""Time as an argument, so that a test can turn it back."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what people read, monotonic time for how long things take."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970-01-01 UTC; may jump in either direction."""
        ...

    def monotonic(self) -> float:
        """Seconds since some start; never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970-01-01 UTC."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()
