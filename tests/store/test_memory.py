"""One bound on the memory of all open segments."""

from __future__ import annotations

import gc

from penstock.log.environment import MemoryBound, shared_memory_bound


class Holder:
    """Counts how often it was asked to seal."""

    def __init__(self) -> None:
        self.asked = 0

    def seal_soon(self) -> None:
        """Noted."""
        self.asked += 1


def test_the_largest_holder_is_asked_when_all_together_hold_too_much() -> None:
    """Not the one that came last, and nobody before."""
    bound, small, large = MemoryBound(100), Holder(), Holder()
    bound.hold(large, 60)
    bound.hold(small, 40)
    assert (small.asked, large.asked) == (0, 0)
    bound.hold(small, 41)
    assert (small.asked, large.asked) == (0, 1)


def test_what_was_sealed_no_longer_counts() -> None:
    """A holder says what it has now, not what it has more."""
    bound, first, second = MemoryBound(100), Holder(), Holder()
    for _ in range(10):
        bound.hold(first, 90)
        bound.hold(first, 0)
    bound.hold(second, 100)
    assert (first.asked, second.asked) == (0, 0)


def test_one_holder_alone_may_hold_too_much() -> None:
    """Then it is asked itself."""
    bound, only = MemoryBound(100), Holder()
    bound.hold(only, 101)
    assert only.asked == 1


def test_a_holder_that_is_gone_holds_nothing() -> None:
    """A store that was dropped unclosed must not make the others seal for ever."""
    bound, left = MemoryBound(100), Holder()
    bound.hold(Holder(), 90)
    gc.collect()
    bound.hold(left, 50)
    assert left.asked == 0


def test_a_process_has_one_bound() -> None:
    """However many stores it has."""
    assert shared_memory_bound() is shared_memory_bound()
