"""Ports on loopback that nobody uses at the moment."""

from __future__ import annotations

import contextlib
import random
import socket
import time

_OWN_PORTS = (15_000, 32_000)
PATIENCE_S = 60.0
"""How long a test waits for what must happen, before it calls it a hang."""


def free_ports(count: int) -> list[int]:
    """Different ports, all free a moment ago.

    None that the system gives out by itself: a server that is started later, or again, finds them
    free still.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(*_OWN_PORTS)
        with contextlib.closing(socket.socket()) as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found


def wait_until(what: str, ready: object, patience_s: float = PATIENCE_S) -> None:
    """Asks `ready()` until it is true; AssertionError where that never happens."""
    assert callable(ready)
    deadline = time.monotonic() + patience_s
    while not ready():
        assert time.monotonic() < deadline, f"{what} did not happen within {patience_s} s"
        time.sleep(0.05)
