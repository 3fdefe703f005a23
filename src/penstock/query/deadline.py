"""How long a query may take, over all of its attempts."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from penstock.model.errors import QueryTooSlow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection


class Deadline:
    """Begins when it is made; None: none."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._until = None if seconds is None else time.monotonic() + seconds

    @contextlib.contextmanager
    def of(self, connection: DuckDBPyConnection) -> Iterator[None]:
        """Stops what the connection does when the time is over, and raises QueryTooSlow."""
        if self._until is None:
            yield
            return
        self.check()
        timer = threading.Timer(self._until - time.monotonic(), connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # or the connection may outlive the interpreter, which complains
        self.check()

    def check(self) -> None:
        """QueryTooSlow where the time is over."""
        if self._until is not None and time.monotonic() >= self._until:
            raise QueryTooSlow(f"the query took longer than {self._seconds} s")
