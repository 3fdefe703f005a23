"""A child that runs by itself: started again whenever it ends, ended when it does not answer.

It is told what it is, says when it is ready, and is asked in passing, several questions at a time:

    {"id": 7, "ask": "report"}      answered by {"id": 7, ...}, in any order
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from penstock.children.asking import PIPES, command
from penstock.children.frames import (
    decode_document,
    encode_document,
    pieces,
    read_message_async,
)

if TYPE_CHECKING:
    from asyncio.subprocess import Process

_LOG = logging.getLogger(__name__)
ANSWER_S: Final = 10.0
_MOST_BYTES: Final = 64 * 1024 * 1024
_LAST_WORDS_S: Final = 0.2
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0


class Guarded:
    """One such process after the other. Belongs to one event loop."""

    def __init__(
        self,
        module: str,
        title: str,
        orders: dict[str, Any],
        *,
        deadline_s: float,
        stops_in_order: bool = True,
        environment: dict[str, str] | None = None,
    ) -> None:
        """`title` is how people know it. Who does not answer for `deadline_s` is ended.

        `environment` is beside our own.

        Without `stops_in_order` it is killed when it is to stop: it has nothing to put in order.
        """
        self.title = title
        self.restarts = 0
        self.ready = asyncio.Event()
        """While it can be asked."""
        self._module = module
        self._orders = orders
        self._environment = environment or {}
        self._patience_s = deadline_s / 2
        self._stops_in_order = stops_in_order
        self._process: Process | None = None
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any] | None]] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Until `stop`, with a pause after each end that grows."""
        pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            started = asyncio.get_running_loop().time()
            try:
                ended = f"ended with {await self._live()}"
            except OSError as error:  # the machine has no process or memory for it at present
                ended = f"could not be started ({error})"
            if self._stopping.is_set():
                return
            lived = asyncio.get_running_loop().time() - started
            pause_s = _FIRST_PAUSE_S if lived > _LONGEST_PAUSE_S else pause_s
            _LOG.error("%s %s and is started again", self.title, ended)
            self.restarts += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def ask(self, what: str, timeout_s: float = ANSWER_S) -> dict[str, Any] | None:
        """Its answer; None where there is none in time, or nobody to give one."""
        if not self.ready.is_set():
            return None
        number = next(self._ids)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._say({"id": number, "ask": what})
            return await asyncio.wait_for(future, timeout_s)
        except (TimeoutError, OSError):
            return None
        finally:
            self._waiting.pop(number, None)

    def stop(self) -> None:
        """It is to end in order, and not to be started again."""
        self._stopping.set()
        if not self._stops_in_order:
            self.kill()
        elif self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """Ends it at once."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _live(self) -> int:
        """From the start of a process to its end; returns its exit code."""
        process = await asyncio.create_subprocess_exec(
            *command(self._module), env={**os.environ, **self._environment}, **PIPES
        )
        self._process = process
        if self._stopping.is_set():  # while it was being started
            self.stop()
        self._say(self._orders)
        reading = asyncio.create_task(self._read(process))
        watching = asyncio.create_task(self._watch())
        try:
            code = await process.wait()
            await asyncio.wait([reading], timeout=_LAST_WORDS_S)
        finally:
            self.ready.clear()
            for task in (reading, watching):
                task.cancel()
            for future in self._waiting.values():
                if not future.done():
                    future.set_result(None)
        return code

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError):
            try:
                while True:
                    [answer] = await read_message_async(process.stdout, _MOST_BYTES)
                    self._hear(decode_document(answer))
            except ValueError:
                # Who is not read blocks at its next word.
                _LOG.exception("%s says what nobody understands, and is ended", self.title)
                self.kill()

    def _hear(self, document: dict[str, Any]) -> None:
        if document.get("ready"):
            self.ready.set()
            return
        waiting = self._waiting.pop(document.get("id", -1), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(document)

    async def _watch(self) -> None:
        """Ends it when it does not answer.

        Asked twice: after this process itself had no time, the first answer may only be late.
        """
        await self.ready.wait()
        while True:
            answers = False
            for _ in range(2):
                answers = answers or await self.ask("ping", self._patience_s) is not None
            if not answers and self.ready.is_set():
                _LOG.error("%s does not answer and is ended", self.title)
                self.kill()
            await asyncio.sleep(self._patience_s)

    def _say(self, document: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.writelines(pieces([encode_document(document)]))
