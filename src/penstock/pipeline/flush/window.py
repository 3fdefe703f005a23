"""The identities of what was written lately, to recognise what is sent again.

A few sorted runs, merged as they grow, so that a batch costs the logarithm of the window and not
the window. About 16 bytes a row.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.pipeline.flush.hashing import Hashes


@dataclass(slots=True)
class _Run:
    newest_s: float
    keys: Hashes
    """Sorted by the first number."""


class Window:
    """Rows that were written within `seconds`, at most `most` of them."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._runs: list[_Run] = []

    @classmethod
    def without_end(cls) -> Window:
        """One that forgets nothing."""
        return cls(math.inf, sys.maxsize)

    def __len__(self) -> int:
        return sum(len(run.keys) for run in self._runs)

    def knows(self, keys: Hashes) -> NDArray[np.bool_]:
        """Which of the rows are in it."""
        found = np.zeros(len(keys), bool)
        order = np.argsort(keys[:, 0])  # neighbours are then looked up in the same memory
        ordered = keys[order]
        for run in self._runs:
            found[order] |= _is_in(ordered, run.keys)
        return found

    def add(self, keys: Hashes, now_s: float) -> None:
        """Remembers rows, and forgets those that are too old or too many."""
        keys = keys[max(len(keys) - self._most, 0) :]
        if len(keys) and self._seconds > 0:
            self._runs.append(_Run(now_s, in_order(keys)))
        self._runs = [run for run in self._runs if run.newest_s >= now_s - self._seconds]
        while len(self._runs) > 1 and len(self) > self._most:
            self._runs.pop(0)
        self._merge()

    def _merge(self) -> None:
        """Each run is at least twice the next; an old run that grows is forgotten later."""
        runs = self._runs
        while len(runs) > 1 and len(runs[-2].keys) < 2 * len(runs[-1].keys):
            newer, older = runs.pop(), runs.pop()
            both = np.concatenate([older.keys, newer.keys])
            runs.append(_Run(newer.newest_s, in_order(both)))


def in_order(keys: Hashes) -> Hashes:
    """As a window has them; it takes keys in this order in half the time.

    A stable sort merges what is sorted already. Each number in memory of its own.
    """
    return np.asfortranarray(keys[np.argsort(keys[:, 0], kind="stable")])


def _is_in(keys: Hashes, run: Hashes) -> NDArray[np.bool_]:
    """By the first number; those few that share it are compared one after another."""
    at = np.searchsorted(run[:, 0], keys[:, 0])
    found = np.zeros(len(keys), bool)
    left = np.arange(len(keys))
    while len(left):
        inside = at[left] < len(run)
        left = left[inside]
        left = left[run[at[left], 0] == keys[left, 0]]
        equal = run[at[left], 1] == keys[left, 1]
        found[left[equal]] = True
        left = left[~equal]
        at[left] += 1
    return found
