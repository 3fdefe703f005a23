"""The rows that were seen."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.lake.window import Window

Keys = NDArray[np.uint64]
_FEW = st.integers(0, 6)
"""Of so few numbers many are equal in one half, and differ in the other."""
KEY = st.tuples(_FEW, _FEW) | st.tuples(st.just(2**64 - 1), _FEW)
BATCHES = st.lists(st.lists(KEY, max_size=20), max_size=12)


def keys(*pairs: tuple[int, int]) -> Keys:
    """As hashes."""
    return np.array(pairs, np.uint64).reshape(-1, 2)


def numbered(begin: int, end: int) -> Keys:
    """Keys that differ."""
    return keys(*((number * 7919 % 1009, number) for number in range(begin, end)))


@settings(max_examples=50, deadline=None)
@given(BATCHES, st.lists(KEY, max_size=20))
def test_window_knows_exactly_what_it_was_given(
    batches: list[list[tuple[int, int]]], asked: list[tuple[int, int]]
) -> None:
    """However its runs were merged, and whichever half of a key others share."""
    window, given_ = Window(), set()
    for batch in batches:
        window.add(keys(*batch))
        given_ |= {*batch}
    everything = [*asked, *given_]
    assert window.knows(keys(*everything)).tolist() == [each in given_ for each in everything]


def test_merging_keeps_all() -> None:
    """Many small additions become few runs, and nothing is lost."""
    window = Window()
    for number in range(100):
        window.add(numbered(number, number + 1))
    assert len(window) == 100
    assert window.knows(numbered(0, 100)).all()
    assert not window.knows(numbered(100, 200)).any()
    assert len(window._runs) <= 8


def test_nothing_is_known_of_nothing() -> None:
    """Empty additions and questions are answered."""
    window = Window()
    window.add(keys())
    assert window.knows(keys()).tolist() == []
    assert window.knows(numbered(0, 1)).tolist() == [False]
