"""How long to wait before the next try."""

from __future__ import annotations

import random
from typing import Final

_DOUBLINGS: Final = 8
"""So a pause is measured by the first one, also where that is far below the longest."""


class Backoff:
    """Pauses between tries: random, below a bound that doubles with each and is bounded itself.

    Random, so that those who were refused together do not come together again.
    """

    def __init__(
        self, first_s: float, longest_s: float, randomness: random.Random | None = None
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._randomness = randomness or random.SystemRandom()
        self._tries = 0

    def reset(self) -> None:
        """A try came through: the next pause is short again."""
        self._tries = 0

    def next_s(self, first_s: float | None = None) -> float:
        """The next pause in seconds; `first_s` where what was tried says how long one is."""
        first = self._first_s if first_s is None else first_s
        bound = min(self._longest_s, first * 2.0**self._tries)
        self._tries = min(self._tries + 1, _DOUBLINGS)
        return self._randomness.uniform(0.0, bound)
