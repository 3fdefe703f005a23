"""The machine's clocks."""

from __future__ import annotations

import time

from penstock.model import SystemClock


def test_system_clock_reads_the_machines_clocks() -> None:
    """Wall time counts nanoseconds since 1970, monotonic time never goes back."""
    clock = SystemClock()
    before = time.time_ns()
    assert before <= clock.wall_ns() <= time.time_ns()
    assert clock.monotonic() <= clock.monotonic()
