"""One process that answers queries, seen from the server: asked, watched, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.server.configuration import config as configuration
from penstock.server.querying.frames import encode_frame, read_frame_async
from penstock.server.receiving.refusals import Cause, Refusal
from penstock.storage.scratch import Scratch

if TYPE_CHECKING:
    from penstock.server.configuration.config import Config
    from penstock.server.querying.frames import Frame

MODULE: Final = "penstock.server.querying.worker"
_START_S: Final = 60.0
_WATCH_S: Final = 0.2
_GRACE_S: Final = 2.0
"""It stops by itself when its time is over; it is ended so long after that."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class QueryProcess:
    """Answers one question at a time."""

    def __init__(
        self, config: Config, process: asyncio.subprocess.Process, folder: Scratch
    ) -> None:
        self._memory = config.query.memory
        self._process = process
        self._folder = folder
        self.answered = 0

    @classmethod
    async def start(cls, config: Config) -> QueryProcess:
        """Returns when it has imported everything. Refusal where it does not come so far."""
        # Of its own: what it leaves there when it is killed goes with it. Not made in a thread,
        # which nobody would hear of when whoever asks goes away meanwhile.
        folder = Scratch("queries")
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                MODULE,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "TMPDIR": str(folder.path)},
                pass_fds=(folder.fileno(),),  # where it may outlive this process
                start_new_session=True,  # Ctrl-C is the supervisor's to pass on
            )
        except BaseException:
            folder.remove()
            raise
        started = cls(config, process, folder)
        try:
            await started._until_ready(configuration.document(config))
        except BaseException:
            await started.end()
            raise
        return started

    async def _until_ready(self, config: dict[str, Any]) -> None:
        assert self._process.stdout is not None
        self._write({"config": config})
        try:
            async with asyncio.timeout(_START_S):
                await read_frame_async(self._process.stdout)
        except (asyncio.IncompleteReadError, TimeoutError, OSError):
            text = "the process that answers queries does not start"
            raise Refusal(Cause.UNAVAILABLE, text, retry_after_s=5.0) from None

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked; one that has died is known by its memory before by its end."""
        return self._process.returncode is None and self.resident_bytes > 0

    @property
    def resident_bytes(self) -> int:
        """Its memory; 0 where it has ended."""
        try:
            fields = Path(f"/proc/{self._process.pid}/statm").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return int(fields[1]) * _PAGE_BYTES

    async def ask(self, question: dict[str, Any], timeout_s: float) -> Frame:
        """Its answer. Refusal where it took too long or too much memory, and was ended for it.

        Cancelled, the process is of no more use: end it.
        """
        assert self._process.stdout is not None
        self._write({**question, "seconds": timeout_s})
        reading = asyncio.ensure_future(read_frame_async(self._process.stdout))
        watching = asyncio.ensure_future(self._watch())
        try:
            async with asyncio.timeout(timeout_s + _GRACE_S):
                await asyncio.wait({reading, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                text = f"the query took more than {self._memory} bytes of memory"
                raise Refusal(Cause.OVER_LIMIT, text)
            self.answered += 1
            return reading.result()
        except TimeoutError:
            text = f"the query took longer than {timeout_s:g} s"
            raise Refusal(Cause.OVER_LIMIT, text) from None
        except (asyncio.IncompleteReadError, OSError):
            text = "the process that answered the query has ended; ask again"
            raise Refusal(Cause.UNAVAILABLE, text, retry_after_s=1.0) from None
        finally:
            await _cancelled(reading, watching)

    async def end(self) -> None:
        """At once, whatever it is at."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await asyncio.to_thread(self._folder.remove)

    async def _watch(self) -> None:
        """Returns when it has taken too much memory."""
        while self.resident_bytes <= self._memory:
            await asyncio.sleep(_WATCH_S)

    def _write(self, document: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(encode_frame(document))


async def _cancelled(*futures: asyncio.Future[Any]) -> None:
    for each in futures:
        each.cancel()
    await asyncio.wait(futures)
    for each in futures:
        if not each.cancelled():
            each.exception()  # seen, so that nobody complains that it was not
