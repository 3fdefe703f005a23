"""What this process and all that come from it use: the driver, Spark's Java, its Python workers."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKER = "pyspark.daemon"
LOOK_S = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s() -> float:
    """Processor time so far, of those too that have ended and were waited for."""
    return sum(map(_cpu_s, _descendants(os.getpid())))


class WorkerMemory:
    """The most that one Python worker has had at once since it was begun, mapped files included."""

    def __init__(self) -> None:
        self.most_bytes = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Looks now and then, since workers come and go; the system itself keeps the peaks."""
        _forget_peaks()
        ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(ended,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        self._look()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        self.most_bytes = max([self.most_bytes, *map(_peak_bytes, _workers())])


def _workers() -> list[int]:
    """The daemon itself and what it has forked."""
    return [pid for pid in _descendants(os.getpid()) if WORKER in _command(pid)]


def _forget_peaks() -> None:
    for pid in _workers():
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def _descendants(pid: int) -> list[int]:
    """The process and all that come from it."""
    # By their parents: the list of `children` in /proc leaves some out at times.
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (fields := _stat(int(folder.name))):
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def _cpu_s(pid: int) -> float:
    return sum(map(int, _stat(pid)[11:15])) / _TICKS


def _stat(pid: int) -> list[str]:
    """What /proc says of a process, from its state on; empty where it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


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
