"""A commit: what every append of one group commit waits for."""

from __future__ import annotations

import asyncio
import copy
import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


class Append(NamedTuple):
    """What `Log.append` returns at once."""

    offset: int
    """The message's offset; of several, the first one's. Final when `durable` has resolved."""

    durable: Commit
    """`durable.wait()` or `await durable`: returns when the message is durable, else raises."""


class Commit:
    """Shared by all appends that reach the disk together; resolves once, for good.

    Waiting may be abandoned (a timeout, a cancelled task) and begun again; that changes nothing
    about the message, which may still become durable.
    """

    __slots__ = ("_error", "_help", "_lock", "_resolved", "_sleepers", "_tasks")

    def __init__(self, help_along: Callable[[Commit], None] | None = None) -> None:
        """`help_along` lets a thread that would only sleep do the commit itself."""
        self._help = help_along
        self._lock = threading.Lock()
        self._resolved = False
        self._error: Exception | None = None
        self._sleepers: list[threading.Lock] = []
        self._tasks: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}

    @property
    def done(self) -> bool:
        """Whether it has resolved, well or not."""
        return self._resolved

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until durable. Raises why it is not, or TimeoutError while that is open."""
        if not self.settle(timeout):
            raise TimeoutError("the commit is still under way")
        self._raise_error()

    def __await__(self) -> Generator[object, None, None]:
        """Suspends the task until durable; raises why it is not."""
        if (future := self._enlist()) is not None:
            yield from future
        self._raise_error()

    def settle(self, timeout: float | None = None) -> bool:
        """Blocks until resolved, well or not; False when the timeout came first."""
        if self._help is not None and timeout is None and not self._resolved:
            self._help(self)
        if self._resolved:
            return True
        bell = threading.Lock()
        bell.acquire()
        with self._lock:
            if self._resolved:
                return True
            self._sleepers.append(bell)
        return bell.acquire(timeout=-1 if timeout is None else max(0.0, timeout))

    async def settle_async(self) -> None:
        """Suspends the task until resolved, well or not."""
        if (future := self._enlist()) is not None:
            await future

    def resolve(self, error: Exception | None = None) -> None:
        """Wakes every thread that waits, and each event loop once."""
        with self._lock:
            self._error = error
            self._resolved = True
        for bell in self._sleepers:
            bell.release()
        for loop, futures in self._tasks.items():
            try:
                loop.call_soon_threadsafe(_wake, futures)
            except RuntimeError:  # the loop was closed, and its tasks with it
                continue
        self._help = None

    def _enlist(self) -> asyncio.Future[None] | None:
        """A future that `resolve` completes; None where it already did."""
        if self._resolved:
            return None
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            if self._resolved:
                return None
            self._tasks.setdefault(loop, []).append(future)
        return future

    def _raise_error(self) -> None:
        if self._error is not None:
            # Each waiter raises its own copy: a traceback belongs to one raise.
            raise copy.copy(self._error) from self._error.__cause__


def _wake(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # its task may have been cancelled
            future.set_result(None)


def _resolved_commit() -> Commit:
    commit = Commit()
    commit.resolve()
    return commit


ALREADY = _resolved_commit()
"""For appends that wait for nothing."""
