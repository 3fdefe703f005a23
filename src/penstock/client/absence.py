"""A server that is away for a while: restarted, killed, moved, or with no place for a call."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from penstock.model.backoff import Backoff
from penstock.model.clock import SystemClock
from penstock.model.errors import ConnectionClosed

if TYPE_CHECKING:
    from penstock.model.clock import Clock

PATIENCE_S: Final = 60.0
"""Longer than a server takes to start again."""
_FIRST_S: Final = 0.1
_LONGEST_S: Final = 5.0
_LOG = logging.getLogger(__name__)


class Absence:
    """Between the tries of one call. The error of the last is raised when patience is over."""

    def __init__(
        self,
        patience_s: float | None,
        closed: threading.Event | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`patience_s` None is for ever. `closed` ends the waiting."""
        self.patience_s = patience_s
        self._closed = closed or threading.Event()
        self._clock = clock or SystemClock()
        self._backoff = Backoff(_FIRST_S, _LONGEST_S)
        self._since: float | None = None

    def over(self) -> None:
        """The server answered."""
        if self._since is not None:
            _LOG.info("the server is back")
        self._since = None
        self._backoff.reset()

    def wait(self, error: Exception, least_s: float = 0.0) -> None:
        """Until it is time for the next try."""
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
            _LOG.warning("the server is away: %s", error)
        pause_s = max(self._backoff.next_s(), least_s)
        if self.patience_s is not None and now + pause_s > self._since + self.patience_s:
            raise error
        if self._closed.wait(pause_s):
            raise ConnectionClosed("the connection was closed here") from error
