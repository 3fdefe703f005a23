"""Identities of rows in memory, to recognise those that come again.

A few sorted runs, merged as they grow, so that an addition costs the logarithm of what is there and
not all of it. 16 bytes a row. What was committed earlier is in `repeat_window`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.lake.hashing import Hashes


class Window:
    """Rows that were seen; forgets nothing."""

    def __init__(self) -> None:
        self._runs: list[Hashes] = []
        """Sorted by the first number."""

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def knows(self, keys: Hashes) -> NDArray[np.bool_]:
        """Which of the rows are in it."""
        found = np.zeros(len(keys), bool)
        order = np.argsort(keys[:, 0])  # neighbours are then looked up in the same memory
        ordered = keys[order]
        for run in self._runs:
            found[order] |= is_in(ordered, run[:, 0], run[:, 1])
        return found

    def add(self, keys: Hashes) -> None:
        """Remembers rows."""
        if len(keys):
            self._runs.append(in_order(keys))
        runs = self._runs
        while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
            newer, older = runs.pop(), runs.pop()
            runs.append(in_order(np.concatenate([older, newer])))


def in_order(keys: Hashes) -> Hashes:
    """As a window has them; it takes keys in this order in half the time.

    A stable sort merges what is sorted already. Each number in memory of its own.
    """
    return np.asfortranarray(keys[np.argsort(keys[:, 0], kind="stable")])


def is_in(keys: Hashes, first: NDArray[np.uint64], second: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each key is one of those, which are sorted by their first halves.

    By the first number; those few that share it are compared one after another.
    """
    at = np.searchsorted(first, keys[:, 0])
    found = np.zeros(len(keys), bool)
    left = np.arange(len(keys))
    while len(left):
        inside = at[left] < len(first)
        left = left[inside]
        left = left[first[at[left]] == keys[left, 0]]
        equal = second[at[left]] == keys[left, 1]
        found[left[equal]] = True
        left = left[~equal]
        at[left] += 1
    return found
