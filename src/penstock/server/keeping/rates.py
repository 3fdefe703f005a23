"""How much comes in a second, of late."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.model.clock import Clock
    from penstock.store import Store

WINDOW_S: Final = 10.0


class Rates:
    """Looks at the ends of the logs now and then; requests do not count themselves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[str, int] = {}
        self._taken = 0
        self._samples: deque[tuple[float, int]] = deque()

    def sample(self, stores: Iterable[Store]) -> None:
        """What has come since the last look; a log that is new is known from here on."""
        for store in stores:
            end = store.log.end_offset
            self._taken += max(0, end - self._ends.get(store.name, end))
            self._ends[store.name] = end
        now = self._clock.monotonic()
        self._samples.append((now, self._taken))
        while now - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()

    def report(self) -> dict[str, float]:
        """Requests a second, over the last ten."""
        if len(self._samples) < 2:
            return {"requests_per_second": 0.0}
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        return {"requests_per_second": round((after - before) / max(end - begin, 1e-9), 3)}
