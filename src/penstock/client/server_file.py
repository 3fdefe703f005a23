"""Where the server of a data directory can be reached: DATA/server.json, while it runs."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from penstock.model.errors import FormatError
from penstock.storage.documents import decode_document, encode_document
from penstock.storage.files import LocalFiles, read_whole, write_atomically

FILE: Final = "server.json"
SOCKETS: Final = "sockets"
FLIGHT_SOCKET: Final = "flight.sock"
"""Among them: between the front of the Flight port and what is behind it."""
"""The folder of the workers' sockets, which their owner alone may enter."""
_KIND: Final = "server"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server, as it described itself when it was ready."""

    pid: int
    started_ticks: int
    """When its process began, in clock ticks since the machine did: a pid may be used again."""
    host: str
    grpc_port: int
    http_port: int
    flight_port: int
    web_port: int
    workers: int
    """The partition `n` is with the worker `n % workers`."""
    tls: bool
    tokens: bool
    """Whether requests need one."""

    def write(self, data_dir: Path) -> None:
        """Says so to whoever looks."""
        data = encode_document(_KIND, _VERSION, asdict(self))
        write_atomically(LocalFiles(), data_dir / FILE, data)


def remove_server_file(data_dir: Path) -> None:
    """When the server stops. One that is killed leaves it; `running_server` is not deceived."""
    (data_dir / FILE).unlink(missing_ok=True)


def running_server(data_dir: Path) -> RunningServer | None:
    """The server that runs on the data directory; None where none does, as far as can be seen."""
    try:
        found = decode_document(_KIND, _VERSION, read_whole(LocalFiles(), data_dir / FILE))
        server = RunningServer(**found)
    except (FileNotFoundError, FormatError, TypeError):
        return None
    return server if started_ticks(server.pid) == server.started_ticks else None


def started_ticks(pid: int) -> int | None:
    """When a process began; None where there is none, or the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def own_ticks() -> int:
    """Of this process; 0 where the system does not say."""
    return started_ticks(os.getpid()) or 0
