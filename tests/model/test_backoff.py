"""Rules of the pauses between tries."""

from __future__ import annotations

import random

from penstock.model.backoff import Backoff


def bounds(backoff: Backoff, tries: int) -> list[float]:
    """The pauses, where chance always takes the longest."""
    return [backoff.next_s() for _ in range(tries)]


class Longest(random.Random):
    """Chance that takes the upper bound."""

    def uniform(self, _: float, b: float) -> float:
        """The bound."""
        return b


def test_pauses_double_to_their_bound() -> None:
    """And stay there, however long nothing comes through."""
    assert bounds(Backoff(0.1, 0.5, Longest()), 5) == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert bounds(Backoff(0.1, 0.5, Longest()), 5000)[-1] == 0.5


def test_pauses_are_short_again_after_a_success() -> None:
    """Also where the caller says what a short one is."""
    backoff = Backoff(0.1, 10.0, Longest())
    bounds(backoff, 3)
    backoff.reset()
    assert backoff.next_s() == 0.1
    assert backoff.next_s(first_s=1.0) == 2.0


def test_pauses_are_random() -> None:
    """Those who were refused together do not come together again."""
    pauses = bounds(Backoff(1.0, 1.0), 50)
    assert len(set(pauses)) > 40
    assert all(0.0 <= pause <= 1.0 for pause in pauses)
