"""Work in the background that may not end unseen."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_LOG = logging.getLogger(__name__)


def watched(
    work: Coroutine[Any, Any, None], what: str, on_failure: Callable[[], None]
) -> asyncio.Task[None]:
    """A task. Should it fail, the log says of what, and `on_failure` does what follows from it.

    A task that somebody only cancels or waits for keeps its error to itself; this one does not.
    """
    task = asyncio.create_task(work)

    def look(ended: asyncio.Task[None]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            _LOG.error("%s failed: %s", what, error, exc_info=error)
            on_failure()

    task.add_done_callback(look)
    return task
