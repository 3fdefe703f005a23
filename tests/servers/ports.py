"""Ports on loopback that nobody uses at the moment."""

from __future__ import annotations

import contextlib
import socket
import time

PATIENCE_S = 60.0
"""How long a test waits for what must happen, before it calls it a hang."""


def free_ports(count: int) -> list[int]:
    """Different ports, all free a moment ago."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_until(what: str, ready: object, patience_s: float = PATIENCE_S) -> None:
    """Asks `ready()` until it is true; AssertionError where that never happens."""
    assert callable(ready)
    deadline = time.monotonic() + patience_s
    while not ready():
        assert time.monotonic() < deadline, f"{what} did not happen within {patience_s} s"
        time.sleep(0.05)
