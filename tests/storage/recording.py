"""File systems and processes that tests of storage look at from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from penstock.storage import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.storage import File
    from penstock.storage.files import Buffer

_HOLD_LOCK = """
import sys
from pathlib import Path
from penstock.storage import LocalFiles
lock = LocalFiles().lock(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""


class RecordingFiles(LocalFiles):
    """The machine's file system, with a list of what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def create(self, path: Path) -> File:
        """A new file."""
        self.calls.append(f"create {path.name}")
        return _RecordingFile(super().create(path), self.calls)

    def rename(self, source: Path, target: Path) -> None:
        """Atomic."""
        self.calls.append(f"rename {source.name} {target.name}")
        super().rename(source, target)

    def sync_folder(self, folder: Path) -> None:
        """Makes the names in it durable."""
        self.calls.append(f"sync_folder {folder.name}")
        super().sync_folder(folder)


class _RecordingFile:
    def __init__(self, inner: File, calls: list[str]) -> None:
        self._inner = inner
        self._calls = calls

    def pwrite(self, pieces: Sequence[Buffer], position: int) -> None:
        self._calls.append("pwrite")
        self._inner.pwrite(pieces, position)

    def sync(self) -> None:
        self._calls.append("sync")
        self._inner.sync()

    def close(self) -> None:
        self._calls.append("close")
        self._inner.close()


@contextlib.contextmanager
def process_holding(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock; it releases at a first line and ends at a second."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", _HOLD_LOCK, os.fspath(path)], **pipes) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            yield holder
        finally:
            holder.kill()
