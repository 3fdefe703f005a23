"""The supervisor's side of a process: one that receives, or the one of the Flight port."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from penstock.server.configuration import config as configuration
from penstock.server.tasks import watched

if TYPE_CHECKING:
    from penstock.server.configuration.config import Config

ANSWER_S: Final = 10.0
_LINE_BYTES: Final = 64 * 1024 * 1024
_LAST_WORDS_S: Final = 0.2


class Child:
    """A worker process."""

    module = "penstock.server.worker"
    kind = "worker"

    def __init__(self, config: Config, number: int, grpc_port: int, http_port: int) -> None:
        self.number = number
        self._orders = {
            "config": configuration.document(config),
            "number": number,
            "grpc_port": grpc_port,
            "http_port": http_port,
        }
        self._process: asyncio.subprocess.Process | None = None
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.ready = asyncio.Event()

    @property
    def title(self) -> str:
        """How the log names it."""
        return f"{self.kind} {self.number}"

    @property
    def pid(self) -> int | None:
        """Of the process that runs, or ran last."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Starts the process; `ready` is set when it listens."""
        self.ready.clear()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self.module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            start_new_session=True,  # Ctrl-C is the supervisor's to pass on
        )
        self._write(self._orders)

    async def run(self) -> int:
        """Reads its answers until it ends; returns its exit code."""
        assert self._process is not None
        # Who is not read blocks at its next word: it is ended, and started again.
        reading = watched(self._read(self._process), f"reading {self.title}", self.kill)
        code = await self._process.wait()
        # Not until the end of its stdout alone: its own children may keep that open.
        await asyncio.wait([reading], timeout=_LAST_WORDS_S)
        reading.cancel()
        self.ready.clear()
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()
        return code

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            document = json.loads(line)
            if document.get("ready"):
                self.ready.set()
                continue
            waiting = self._waiting.pop(document.get("id", -1), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(document)

    async def ask(self, what: str, timeout_s: float = ANSWER_S) -> dict[str, Any] | None:
        """Its answer; None where there is none in time, or nobody to give one."""
        if not self.ready.is_set():
            return None
        number = next(self._ids)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._write({"id": number, "ask": what})
            return await asyncio.wait_for(future, timeout_s)
        except (TimeoutError, asyncio.CancelledError, OSError):
            self._waiting.pop(number, None)
            return None

    def terminate(self) -> None:
        """Asks it to stop in order."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """Ends it at once."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _write(self, document: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(document).encode() + b"\n")


class FlightChild(Child):
    """The process of the Flight port."""

    module = "penstock.server.flight.process"
    kind = "the Flight process"

    def __init__(self, config: Config, port: int) -> None:
        super().__init__(config, 0, 0, 0)
        self._orders = {"config": configuration.document(config), "flight_port": port}

    @property
    def title(self) -> str:
        """There is one."""
        return self.kind

    def terminate(self) -> None:
        """It has nothing to put in order: what it has handed out is delivered again."""
        self.kill()
