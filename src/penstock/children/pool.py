"""Children for the questions of an event loop, a few at a time, kept for the next question."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.children.asking import ChildDied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.children.asking import Child
    from penstock.children.frames import Part

Done = TypeVar("Done")
_START_S: Final = 60.0


class PoolClosed(ChildDied):
    """Nobody is asked any more; whoever waited for an answer is told to come again."""


class ChildNotReady(ChildDied):
    """A new one did not come so far that it could be asked."""


class Pool:
    """Belongs to one event loop, which its children and their pipes do not hold up."""

    def __init__(
        self,
        start: Callable[[], Child],
        *,
        most: int,
        kept_bytes: float,
        idle_s: float = math.inf,
        most_answers: float = math.inf,
        orders: Sequence[Part] | None = None,
        on_end: Callable[[Child], None] = lambda _: None,
    ) -> None:
        """At most `most` are asked at once: the caller sees to it.

        One that has more than `kept_bytes` after an answer is not kept, nor one that nobody asks
        for `idle_s`; and whatever a library does not free goes after `most_answers`. `orders`: what
        each is told first, and answers when it can be asked.
        """
        self._start = start
        self._orders = orders
        self._kept_bytes = kept_bytes
        self._idle_s = idle_s
        self._most_answers = most_answers
        self._on_end = on_end
        self._threads = ThreadPoolExecutor(2 * most, "children")
        self._idle: dict[Child, asyncio.TimerHandle | None] = {}
        self._busy: set[Child] = set()
        self._ends: set[asyncio.Future[None]] = set()
        self._hurry_s = math.inf
        self.closed = False
        self.restarts = 0
        """How many had to be replaced since they died, or were killed for what they did."""

    async def ask(self, parts: Sequence[Part], within_s: float) -> list[memoryview]:
        """The answer of one of them; ChildDied where there is none. Cancellation ends the child."""
        child = await self._ready()
        answer = await self._asked(child, parts, within_s)
        self._keep(child)
        return answer

    async def run(self, work: Callable[..., Done], *arguments: object) -> Done:
        """In a thread of its own."""
        if self.closed:
            raise PoolClosed("it is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def silent_s(self) -> float:
        """How long somebody waits for an answer, at the most."""
        return max((child.silent_s for child in self._busy), default=0.0)

    def hurry(self, within_s: float) -> None:
        """What is asked now, and from now on, has no more time than that."""
        self._hurry_s = within_s
        for child in self._busy:
            child.hurry(within_s)

    async def close(self) -> None:
        """Ends all of them, whatever they are at."""
        self.closed = True
        for child in self._busy:
            child.kill()  # whoever asked it ends it
        while self._idle:
            self._end_soon(self._idle_one())
        while self._busy or self._ends:
            await asyncio.wait(self._ends) if self._ends else await asyncio.sleep(0.01)
        await asyncio.to_thread(self._threads.shutdown)

    async def _ready(self) -> Child:
        while self._idle:
            child = self._idle_one()
            if child.is_usable:
                return child
            self.restarts += 1
            self._end_soon(child)
        if self.closed:
            raise PoolClosed("it is closed")
        try:
            child = self._start()
        except OSError as error:  # the machine has no process or memory for it at present
            raise ChildNotReady(str(error)) from error
        try:
            if self._orders is not None:
                await self._asked(child, self._orders, _START_S)
        except PoolClosed:
            raise
        except ChildDied as error:
            raise ChildNotReady(str(error)) from error
        return child

    async def _asked(
        self, child: Child, parts: Sequence[Part], within_s: float
    ) -> list[memoryview]:
        if self.closed:
            self._end_soon(child)
            raise PoolClosed("it is closed")
        self._busy.add(child)
        try:
            return await self.run(child.ask, parts, min(within_s, self._hurry_s))
        except ChildDied as error:
            self._end_soon(child)
            if self.closed:
                raise PoolClosed("it is closed") from error
            self.restarts += 1
            raise
        except BaseException:
            self._end_soon(child)
            raise
        finally:
            self._busy.discard(child)

    def _idle_one(self) -> Child:
        child, timer = self._idle.popitem()
        if timer is not None:
            timer.cancel()
        return child

    def _keep(self, child: Child) -> None:
        large = child.resident_bytes > self._kept_bytes
        if self.closed or large or child.answered >= self._most_answers:
            self._end_soon(child)
            return
        loop = asyncio.get_running_loop()
        idles = self._idle_s < math.inf
        self._idle[child] = loop.call_later(self._idle_s, self._retire, child) if idles else None

    def _retire(self, child: Child) -> None:
        if self._idle.pop(child, None) is not None:
            self._end_soon(child)

    def _end_soon(self, child: Child) -> None:
        """Not in the way of whoever waits for an answer, nor undone by a second cancellation."""
        child.kill()

        def end() -> None:
            child.end()
            self._on_end(child)

        ending = asyncio.get_running_loop().run_in_executor(self._threads, end)
        self._ends.add(ending)
        ending.add_done_callback(self._ends.discard)
