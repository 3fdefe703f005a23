"""Queries, a few at a time: in which process each runs, and when that is replaced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from penstock.server.querying.process import QueryProcess
from penstock.server.querying.turns import EVERYBODY, Turns
from penstock.server.receiving.refusals import Cause, Refusal

if TYPE_CHECKING:
    from penstock.server.configuration.config import Config
    from penstock.server.querying.frames import Frame

IDLE_S: Final = 300.0
"""A process that nobody asks ends after this, and gives back its memory."""
MOST_ANSWERS: Final = 1000
"""Nor does one live for ever: whatever a library does not free goes with it."""
_KEPT_SHARE: Final = 0.5
"""Of the memory that it may have; one that holds more afterwards is not kept."""
_FAILURES: Final = {
    "broken": Cause.FAILED,
    "incomplete": Cause.FAILED,
    "invalid": Cause.INVALID,
    "limit": Cause.OVER_LIMIT,
    "missing": Cause.NOT_INSTALLED,
    "unavailable": Cause.UNAVAILABLE,
}


class Queries:
    """Processes that are kept for the next question. Belongs to one event loop."""

    def __init__(self, config: Config) -> None:
        self._config = config
        allowed = config.query
        self._turns = Turns(allowed.processes, allowed.waiting, allowed.token_processes)
        self._idle: list[QueryProcess] = []
        self._busy: set[QueryProcess] = set()
        self._timers: dict[QueryProcess, asyncio.TimerHandle] = {}
        self._ends: set[asyncio.Task[None]] = set()
        self._closed = False

    async def ask(
        self, question: dict[str, Any], timeout_s: float | None = None, *, who: str = EVERYBODY
    ) -> Frame:
        """The answer to one question of somebody's; Refusal where there is none.

        Cancellation ends the query. A process that was ended, by us or by others, is replaced with
        the next question.
        """
        timeout_s = timeout_s or self._config.query.timeout
        async with self._turns.turn(who, timeout_s):
            answer = await self._ask(question, timeout_s)
        if "failed" in answer.document:
            cause = _FAILURES[answer.document["failed"]]
            retry_s = 5.0 if cause is Cause.UNAVAILABLE else None
            raise Refusal(cause, answer.document["message"], retry_after_s=retry_s)
        return answer

    async def close(self) -> None:
        """Ends all of them; whoever waits for an answer is told to come again."""
        self._closed = True
        for process in [*self._idle, *self._busy]:
            await self._end(process)
        self._idle.clear()
        if self._ends:
            await asyncio.wait(self._ends)

    async def _ask(self, question: dict[str, Any], timeout_s: float) -> Frame:
        process = await self._process()
        if self._closed:  # before, or while the process started
            self._end_soon(process)
            raise Refusal(Cause.UNAVAILABLE, "the server is stopping", retry_after_s=5.0)
        self._busy.add(process)
        try:
            answer = await process.ask(question, timeout_s)
        except BaseException:
            self._end_soon(process)
            raise
        finally:
            self._busy.discard(process)
        self._keep(process)
        return answer

    async def _process(self) -> QueryProcess:
        while self._idle:
            process = self._idle.pop()
            self._timers.pop(process).cancel()
            if process.is_alive:
                return process
            await self._end(process)
        return await QueryProcess.start(self._config)

    def _keep(self, process: QueryProcess) -> None:
        large = process.resident_bytes > _KEPT_SHARE * self._config.query.memory
        if self._closed or large or process.answered >= MOST_ANSWERS:
            self._end_soon(process)
            return
        self._idle.append(process)
        loop = asyncio.get_running_loop()
        self._timers[process] = loop.call_later(IDLE_S, self._retire, process)

    def _retire(self, process: QueryProcess) -> None:
        self._idle.remove(process)
        self._timers.pop(process, None)
        self._end_soon(process)

    def _end_soon(self, process: QueryProcess) -> None:
        """Not in the way of whoever waits for an answer, nor undone by a second cancellation."""
        task = asyncio.create_task(self._end(process))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _end(self, process: QueryProcess) -> None:
        timer = self._timers.pop(process, None)
        if timer is not None:
            timer.cancel()
        await process.end()
