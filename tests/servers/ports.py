"""Ports on loopback that nobody uses at the moment."""

from __future__ import annotations

import contextlib
import random
import socket

_OWN_PORTS = (15_000, 32_000)


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
