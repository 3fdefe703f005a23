"""Who may run a query next, so that no token keeps the others from asking.

A token runs a few queries at once, of all that run; whatever it asks beyond that waits.
Who had a turn longest ago comes first. Where all places to wait are taken, one of whoever has most
of them is given up for one who has fewer: its query is put off, to be asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Final

from penstock.server.receiving.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EVERYBODY: Final = ""
"""The identity of all where there are no tokens, and of the server: bounded by the whole alone."""


class Turns:
    """Belongs to one event loop.

    Invariant: nobody waits while one of theirs could run; `_waiting` is in the order of arrival.
    """

    def __init__(self, running: int, waiting: int, of_token: int) -> None:
        self._most_running = running
        self._most_waiting = waiting
        self._most_of_token = of_token
        self._running: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._served: dict[str, int] = {}
        """The number of the last turn, of those who have queries here."""
        self._numbers = itertools.count()

    @contextlib.asynccontextmanager
    async def turn(self, who: str, timeout_s: float) -> AsyncIterator[None]:
        """Within it a query may run. Refusal, which may be tried again, where none comes."""
        if self._may_run(who):
            self._begin(who)
        else:
            await self._wait(who, timeout_s)
        try:
            yield
        finally:
            self._end(who)

    def _may_run(self, who: str) -> bool:
        most = self._most_running if who == EVERYBODY else self._most_of_token
        return self._running.total() < self._most_running and self._running[who] < most

    async def _wait(self, who: str, timeout_s: float) -> None:
        self._make_place(who)
        coming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((who, coming))
        try:
            async with asyncio.timeout(timeout_s):
                await coming
        except TimeoutError:
            if not _has_come(coming):  # or at the last moment
                raise _busy("other queries took all the time") from None
        except asyncio.CancelledError:
            if _has_come(coming):
                self._end(who)  # nobody is there to take it
            raise
        finally:
            self._waiting = [each for each in self._waiting if each[1] is not coming]
            self._forget(who)

    def _make_place(self, who: str) -> None:
        if len(self._waiting) < self._most_waiting:
            return
        counts = Counter(each for each, _ in self._waiting)
        text = f"{len(self._waiting)} queries wait already, {counts[who]} of them with this token"
        if not counts or counts.most_common(1)[0][1] <= counts[who] + 1:
            raise _busy(text)
        [(greediest, _)] = counts.most_common(1)
        at = max(number for number, (each, _) in enumerate(self._waiting) if each == greediest)
        _, given_up = self._waiting.pop(at)
        given_up.set_exception(_busy("others wait who have asked less"))

    def _begin(self, who: str) -> None:
        self._running[who] += 1
        self._served[who] = next(self._numbers)

    def _end(self, who: str) -> None:
        self._running[who] -= 1
        while ready := [
            each for each in self._waiting if not each[1].done() and self._may_run(each[0])
        ]:
            next_one = min(ready, key=lambda each: self._served.get(each[0], -1))
            self._waiting.remove(next_one)
            self._begin(next_one[0])
            next_one[1].set_result(None)
        self._forget(who)

    def _forget(self, who: str) -> None:
        """Who has no query here is not remembered."""
        if not self._running[who] and all(each != who for each, _ in self._waiting):
            del self._running[who]
            self._served.pop(who, None)


def _has_come(turn: asyncio.Future[None]) -> bool:
    return turn.done() and not turn.cancelled() and turn.exception() is None


def _busy(text: str) -> Refusal:
    return Refusal(Cause.BUSY, text, retry_after_s=1.0)
