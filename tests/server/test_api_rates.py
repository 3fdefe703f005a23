"""How much comes in a second."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.server.with_disk import WINDOW_S, Rates


class Clock:
    """Stands where it is put."""

    now = 100.0

    def monotonic(self) -> float:
        """As every clock."""
        return self.now


def store(name: str, end: int) -> Any:
    """One with a log that ends there."""
    return SimpleNamespace(name=name, log=SimpleNamespace(end_offset=end))


def rate(rates: Rates) -> float:
    """What is reported."""
    return rates.report()["requests_per_second"]


def test_rate_is_that_of_the_last_ten_seconds() -> None:
    """What came before is forgotten."""
    clock: Any = Clock()
    rates = Rates(clock)
    for second in range(30):
        clock.now = 100.0 + second
        rates.sample([store("a", 1000 * min(second, 5)), store("b", 10 * second)])
        if second == 5:
            assert rate(rates) == 1010.0
    assert rate(rates) == 10.0


def test_log_that_was_there_before_counts_from_the_first_look() -> None:
    """Its messages did not come just now; nor does one that was opened anew take any away."""
    clock: Any = Clock()
    rates = Rates(clock)
    rates.sample([store("a", 5_000)])
    assert rate(rates) == 0.0
    clock.now += WINDOW_S / 2
    rates.sample([store("a", 10), store("b", 7_000)])
    assert rate(rates) == 0.0
