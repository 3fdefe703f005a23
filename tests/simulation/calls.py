"""Calls that may wait, made in a thread so that a test can go on, and does not hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.patience import PATIENCE_S


class Call(threading.Thread):
    """Makes the call at once."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.result: Any = None
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        """The call."""
        try:
            self.result = self._call()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def end(self) -> Any:
        """What it returned, when it is over."""
        self.join(PATIENCE_S)
        assert not self.is_alive(), "it waits for ever"
        return self.result

    def outcome(self) -> Any:
        """What it returned or raised, when it is over."""
        result = self.end()
        return result if self.error is None else self.error
