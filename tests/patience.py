"""How long a test waits. Nothing else in the tests has a time limit of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

PATIENCE_S: Final = 300.0
"""For what must happen, before a test calls it a hang: no measure of speed, on no machine."""
_LOOK_S: Final = 0.01


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Asks until the answer is true, and returns that; AssertionError where it never is."""
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not happen within {PATIENCE_S:.0f} s"
        time.sleep(_LOOK_S)
    return found
