"""A commit: what every append of one group commit waits for."""

from __future__ import annotations

import contextlib
import copy
import threading
from asyncio import get_running_loop
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator


class Append(NamedTuple):
    """What `Log.append` returns at once."""

    offset: int
    """The message's offset; of several, the first one's. Final when `durable` has resolved."""

    durable: Commit
    """`durable.wait()` or `await durable`: returns when the message is durable, else raises."""


new_tuple: Callable[[type[Append], tuple[int, Commit]], Append] = tuple.__new__
"""Makes an `Append` in half the time: an append costs little more than this."""


class Commit:
    """Shared by all appends that reach the disk together; resolves once, for good.

    Waiting may be abandoned (a timeout, a cancelled task) and begun again; that changes nothing
    about the message, which may still become durable.

    Invariant, without a lock: `resolve` sets `_resolved` before it looks who waits, and a waiter
    looks at `_resolved` after it has enlisted. So each waiter is woken or does not sleep.
    """

    __slots__ = ("_error", "_help", "_resolved", "_sleepers", "_tasks")

    def __init__(self, help_along: Callable[[Commit], None] | None = None) -> None:
        """`help_along` lets a thread that would only sleep do the commit itself."""
        self._help = help_along
        self._resolved = False
        self._error: Exception | None = None
        self._sleepers: dict[threading.Lock, None] = {}
        self._tasks: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}

    @property
    def done(self) -> bool:
        return self._resolved

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until durable. Raises why it is not, or TimeoutError while that is open."""
        if not self.settle(timeout):
            raise TimeoutError("the commit is still under way")
        self._raise_error()

    def __await__(self) -> Generator[object, None, None]:
        """Suspends the task until durable; raises why it is not."""
        if not self._resolved:
            loop = get_running_loop()
            future = loop.create_future()
            waiting = self._tasks.get(loop)
            if waiting is None:
                waiting = self._tasks[loop] = []
            waiting.append(future)
            if not self.done:
                return future.__await__()
            future.cancel()  # nobody will wait for it
        self._raise_error()
        return _nothing()

    def settle(self, timeout: float | None = None) -> bool:
        """Blocks until resolved, well or not; False when the timeout came first."""
        help_along = self._help
        if help_along is not None and timeout is None and not self._resolved:
            help_along(self)
        if self._resolved:
            return True
        bell = threading.Lock()
        bell.acquire()
        self._sleepers[bell] = None
        if self.done:
            return True
        if bell.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            return True
        self._sleepers.pop(bell, None)  # or polling an idle log would collect them
        return self.done

    async def settle_async(self) -> None:
        """Suspends the task until resolved, well or not."""
        waiting = self._tasks.get(get_running_loop(), [])
        if len(waiting) % 1024 == 1023:  # readers that poll and give up would fill it
            waiting[:] = [other for other in waiting if not other.done()]
        with contextlib.suppress(PenstockError):
            await self

    def resolve(self, error: Exception | None = None) -> None:
        """Wakes every thread that waits, and each event loop once."""
        self._error = error
        self._resolved = True
        self._help = None
        for bell in list(self._sleepers):
            bell.release()
        for loop, waiting in list(self._tasks.items()):
            try:
                loop.call_soon_threadsafe(_wake, waiting, error)
            except RuntimeError:  # the loop was closed, and its tasks with it
                continue

    def _raise_error(self) -> None:
        if self._error is not None:
            raise _own_copy(self._error)


def _wake(futures: list[asyncio.Future[None]], error: Exception | None) -> None:
    for future in futures:
        if future.done():  # its task was cancelled
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(_own_copy(error))


def _own_copy(error: Exception) -> Exception:
    """For one waiter: a traceback belongs to one raise."""
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own


def _nothing() -> Generator[object, None, None]:
    return
    yield


def _resolved_commit() -> Commit:
    commit = Commit()
    commit.resolve()
    return commit


ALREADY = _resolved_commit()
"""For appends that wait for nothing."""
