"""Several sending processes that begin together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from penstock.load.plan import Endpoint
from penstock.load.tally import Tally
from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.load.plan import Plan

PROCESS: Final = (sys.executable, "-m", "penstock.load.process")
_CONNECT_S: Final = 5.0
_LINE_BYTES: Final = 1024 * 1024


def run_load(
    plan: Plan,
    on_progress: Callable[[Tally], object] = lambda _: None,
    command: Sequence[str] = PROCESS,
) -> Tally:
    """What became of the plan; PenstockError where nobody listens or a process dies.

    `on_progress` is called a few times a second with what was sent so far.
    """
    endpoint = Endpoint.parse(plan.endpoint)
    try:
        socket.create_connection((endpoint.host, endpoint.port), _CONNECT_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise PenstockError(f"nobody answers at {endpoint.authority}: {why}") from None
    return asyncio.run(_Fleet(plan, on_progress).run(command))


class _Fleet:
    def __init__(self, plan: Plan, on_progress: Callable[[Tally], object]) -> None:
        self._plan = plan
        self._on_progress = on_progress
        self._sent = [Tally() for _ in range(plan.processes)]

    async def run(self, command: Sequence[str]) -> Tally:
        processes: list[asyncio.subprocess.Process] = []
        try:
            for number in range(self._plan.processes):
                # Ctrl-C is this process's to handle.
                processes.append(
                    await asyncio.create_subprocess_exec(
                        *command,
                        stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.PIPE,
                        limit=_LINE_BYTES,
                        start_new_session=True,
                    )
                )
                _write(processes[-1], {"plan": asdict(self._plan), "number": number})
            for process in processes:
                await _read(process)
            for process in processes:
                _write(process, {"start": True})
            await asyncio.gather(*(self._follow(*each) for each in enumerate(processes)))
        except BaseException:  # Ctrl-C too
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            raise
        finally:
            for process in processes:
                await process.wait()
        return Tally.together(self._sent)

    async def _follow(self, number: int, process: asyncio.subprocess.Process) -> None:
        while True:
            document = await _read(process)
            self._sent[number] = Tally.from_json(document.get("done") or document["sent"])
            self._on_progress(Tally.together(self._sent))
            if "done" in document:
                return


def _write(process: asyncio.subprocess.Process, document: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(document).encode() + b"\n")


async def _read(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise PenstockError(f"a sending process ended with {await process.wait()}")
    document: dict[str, Any] = json.loads(line)
    return document
