"""Receivers to load: Penstock, a bare `grpc.aio` server, and one that keeps requests in Redis."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from servers import HOST, redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORKERS = 2
"""Receiving processes, of each server."""
STOP_LIMIT_S = 60.0
RECEIVER = str(Path(__file__).with_name("ingest_receiver.py"))
SERVE = "from penstock.cli import main; main()"
WORKER = "penstock.server.worker"
DECODER = "penstock.server.keeping.decoder"

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """One that is running."""

    endpoint: str
    pid: int
    web: int | None = None
    http: int | None = None
    helper: int | None = None
    """A process that works for it without being its child."""

    def over_http(self) -> Server:
        """The same one by its other way in."""
        return dataclasses.replace(self, endpoint=f"http://{HOST}:{self.http}")

    def cpu_s(self) -> float:
        """What all of its processes have used so far."""
        return sum(map(_cpu_s, self._pids()))

    def worker_bytes(self) -> int:
        """The most memory that a receiving process of Penstock has had."""
        return self._most_bytes(WORKER)

    def decoder_bytes(self) -> int:
        """The most memory that a decoding process of Penstock has had."""
        return self._most_bytes(DECODER)

    def settle(self) -> None:
        """Waits until everything that it took is decoded and sealed; only Penstock does that."""
        while self.web is not None and not self._flush():
            continue

    def _flush(self) -> bool:
        address = f"http://{HOST}:{self.web}/api/v1/flush"
        request = urllib.request.Request(address, method="POST")
        try:
            with urllib.request.urlopen(request) as response:  # noqa: S310 - our own
                return bool(json.load(response)["flushed"])
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 503:
                    raise
            return False

    def _most_bytes(self, command: str) -> int:
        found = [_peak_bytes(pid) for pid in self._pids() if command in _command(pid)]
        return max(found, default=0)

    def _pids(self) -> list[int]:
        pids = _descendants(self.pid)
        return pids if self.helper is None else [*pids, self.helper]


@contextlib.contextmanager
def penstock(folder: Path) -> Iterator[Server]:
    """`penstock serve` as it comes: every answer after its fdatasync, decoding behind it."""
    options = ["--data-dir", str(folder / "data"), "--workers", str(WORKERS)]
    ports = ("grpc", "http", "flight", "web")
    options += [part for name in ports for part in (f"--{name}-port", "0")]
    with _running([sys.executable, "-c", SERVE, "serve", *options], folder) as (process, ready):
        yield Server(f"{HOST}:{ready['grpc']}", process.pid, ready["web"], http=ready["http"])


@contextlib.contextmanager
def discarding(folder: Path) -> Iterator[Server]:
    """The same kind of receiver, that answers at once."""
    with _running([sys.executable, RECEIVER, str(WORKERS)], folder) as (process, ready):
        yield Server(f"{HOST}:{ready['port']}", process.pid)


@contextlib.contextmanager
def redis_streams(folder: Path) -> Iterator[Server]:
    """The same, that answers when Redis has the request in a stream, and synced."""
    with redis_server(folder) as port:
        command = [sys.executable, RECEIVER, str(WORKERS), str(port)]
        ours = _descendants(os.getpid())
        helper = next(pid for pid in ours if f"{HOST}:{port}" in _command(pid))
        with _running(command, folder) as (process, ready):
            yield Server(f"{HOST}:{ready['port']}", process.pid, helper=helper)


@contextlib.contextmanager
def _running(
    command: Sequence[str], folder: Path
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Starts a program, waits for its line of JSON, and ends it whatever happens."""
    with (folder / "errors.txt").open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            problem = (folder / "errors.txt").read_text()[-500:]
            raise RuntimeError(f"{command!r} does not start: {problem}")
        yield process, json.loads(line)
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    stdin: IO[str] | None = process.stdin
    if stdin is not None:
        stdin.close()
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# --- processes ---------------------------------------------------------------------------------


def _descendants(pid: int) -> list[int]:
    """The process and all that come from it."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children = (task / "children").read_text().split()
            found += [each for child in children for each in _descendants(int(child))]
    return found


def _cpu_s(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS
    return 0.0


def _peak_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""
