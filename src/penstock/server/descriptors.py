"""Descriptors: as many as the system grants, and what is bounded by them.

A file that cannot be opened is put off and tried again; but it should not come to that. So what
takes descriptors without an end, connections and open stores, has its part of them, and the rest
is left to log files, segments and sockets of our own that come and go.
"""

from __future__ import annotations

import contextlib
import resource
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.server.configuration.config import Config

RESERVED: Final = 128
"""For everything that is neither a connection nor an open store, as far as there are so many."""
OF_A_STORE: Final = 4
"""Its lock and its log's, the log's file, and `ack.log`."""
MOST_OPEN_STORES: Final = 1000
"""However many descriptors there are: each has buffers, too."""
_LEAST: Final = 4
_PORTS: Final = 2
_UNKNOWN: Final = 65536


def raise_limit() -> int:
    """The soft limit becomes the hard one, for this process and those it starts; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS names one that it does not grant
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """Descriptors that this process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNKNOWN if soft == resource.RLIM_INFINITY else soft


def most_open_stores(descriptors: int) -> int:
    """Stores that a worker may have open at once: half of what is not reserved."""
    return min(MOST_OPEN_STORES, max(_LEAST, _shared(descriptors) // 2 // OF_A_STORE))


def most_connections(descriptors: int) -> int:
    """Connections that each of a worker's two ports may have: the other half."""
    return max(_LEAST, _shared(descriptors) // 2 // _PORTS)


def bounded(config: Config) -> Config:
    """The configuration with no more connections than this process has descriptors for."""
    connections = min(config.limits.connections, most_connections(limit()))
    return replace(config, limits=replace(config.limits, connections=connections))


def _shared(descriptors: int) -> int:
    return descriptors - min(RESERVED, descriptors // 2)
