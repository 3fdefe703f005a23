"""How a pipeline ends by itself: after the batch under way, and before the next."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Ending:
    """Known to the batches and to whoever wants to end them; both in one process.

    A batch that is not begun is left to the next run, which finds it by the lake's positions.
    """

    def __init__(self) -> None:
        self.is_asked = False
        """Plain: a signal comes while locks are held."""
        self._batch = threading.Lock()

    @contextlib.contextmanager
    def batch(self) -> Iterator[bool]:
        """For the time of a batch; False: it is not to be begun."""
        with self._batch:
            yield not self.is_asked

    def ask(self) -> None:
        """No batch is begun from now on. Waits for nothing: handlers of signals call it."""
        self.is_asked = True

    def wait(self) -> None:
        """Returns when no batch is under way. Whoever waits has asked: no other one follows."""
        with self._batch:
            pass

    def __reduce__(self) -> tuple[Any, ...]:
        """Elsewhere nobody asks."""
        return Ending, ()
