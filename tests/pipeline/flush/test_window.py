"""The window of rows that were written lately."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.pipeline.flush.window import Window

Keys = NDArray[np.uint64]
_FEW = st.integers(0, 6)
"""Of so few numbers many are equal in one half, and differ in the other."""
_KEY = st.tuples(_FEW, _FEW) | st.tuples(st.just(2**64 - 1), _FEW)
_BATCHES = st.lists(st.lists(_KEY, max_size=20), max_size=12)


def keys(*pairs: tuple[int, int]) -> Keys:
    """As hashes."""
    return np.array(pairs, np.uint64).reshape(-1, 2)


def numbered(begin: int, end: int) -> Keys:
    """Keys that differ."""
    return keys(*((number * 7919 % 1009, number) for number in range(begin, end)))


@settings(max_examples=50, deadline=None)
@given(_BATCHES, st.lists(_KEY, max_size=20))
def test_window_knows_exactly_what_it_was_given(
    batches: list[list[tuple[int, int]]], asked: list[tuple[int, int]]
) -> None:
    """However its runs were merged, and whichever half of a key others share."""
    window, given_ = Window.without_end(), set()
    for batch in batches:
        window.add(keys(*batch), 0.0)
        given_ |= {*batch}
    everything = [*asked, *given_]
    assert window.knows(keys(*everything)).tolist() == [each in given_ for each in everything]


def test_merging_keeps_all() -> None:
    """Many small additions become few runs, and nothing is lost."""
    window = Window.without_end()
    for number in range(100):
        window.add(numbered(number, number + 1), 0.0)
    assert len(window) == 100
    assert window.knows(numbered(0, 100)).all()
    assert not window.knows(numbered(100, 200)).any()
    assert len(window._runs) <= 8


def test_old_rows_are_forgotten() -> None:
    """Those that are older than the window, when something is added; the newer ones stay."""
    window = Window(10.0, 1000)
    window.add(numbered(0, 100), 0.0)
    window.add(numbered(100, 101), 9.0)
    assert window.knows(numbered(0, 101)).all()
    window.add(numbered(101, 102), 11.0)
    assert not window.knows(numbered(0, 100)).any()
    assert window.knows(numbered(100, 102)).all()


def test_nothing_is_forgotten_within_the_time() -> None:
    """A run that was merged with a newer one is kept as long as that."""
    window = Window(10.0, 1000)
    for number in range(100):
        window.add(numbered(number, number + 1), number / 2)
        assert window.knows(numbered(max(0, number - 20), number + 1)).all()


@pytest.mark.parametrize("size", [1, 3, 10, 60])
def test_window_never_has_more_rows_than_it_may(size: int) -> None:
    """The newest are those that stay."""
    window = Window(1000.0, 50)
    for number in range(0, 600, size):
        added = numbered(number, number + size)
        window.add(added, 0.0)
        assert len(window) <= 50
        assert window.knows(added[-min(size, 50) :]).all()


def test_window_without_room_or_time_knows_nothing() -> None:
    """That is how repeats across batches are let through."""
    for window in (Window(0.0, 1000), Window(600.0, 0)):
        window.add(numbered(0, 10), 0.0)
        assert len(window) == 0
        assert not window.knows(numbered(0, 10)).any()


def test_nothing_is_known_of_nothing() -> None:
    """Empty additions and questions are answered."""
    window = Window.without_end()
    window.add(keys(), 0.0)
    assert window.knows(keys()).tolist() == []
    assert window.knows(numbered(0, 1)).tolist() == [False]
