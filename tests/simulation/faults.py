"""A file system whose operations fail as the test says.

`FaultyFiles(inner).fail("sync", errno.EIO)` fails the next sync; `times=None` fails all of them,
`name` picks files, `partly` lets a write get some bytes down before it fails.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.storage.files import Buffer, File, Files, Lock


@dataclass(slots=True)
class Fault:
    """Operations that fail."""

    operation: str
    error: int
    name: str
    times: int | None
    after: int
    partly: int
    hits: int = 0
    """How many have failed."""


@dataclass(slots=True)
class Gate:
    """Holds an operation up until it is opened."""

    operation: str
    name: str
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def open(self) -> None:
        """Lets through whatever waits, and all that comes."""
        self.opened.set()

    def pass_through(self) -> None:
        """Waits at the gate."""
        self.reached.set()
        assert self.opened.wait(PATIENCE_S), f"nobody opened the gate before {self.operation}"


class FaultyFiles:
    """Wraps any `Files`. A file opened as `x.tmp` and renamed to `x` goes by the name `x`."""

    def __init__(self, inner: Files) -> None:
        self._inner = inner
        self._faults: list[Fault] = []
        self._gates: list[Gate] = []
        self._open: weakref.WeakSet[FaultyFile] = weakref.WeakSet()

    def fail(
        self,
        operation: str,
        error: int = errno.EIO,
        *,
        name: str = "*",
        times: int | None = 1,
        after: int = 0,
        partly: int = 0,
    ) -> Fault:
        """Fails the operation on matching names `times` times, the first `after` excepted."""
        fault = Fault(operation, error, name, times, after, partly)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Nothing fails any more."""
        self._faults.clear()

    def hold_up(self, operation: str, *, name: str = "*") -> Gate:
        """Makes the operation wait until the gate is opened."""
        gate = Gate(operation, name)
        self._gates.append(gate)
        return gate

    # --- Files ---------------------------------------------------------------------------------

    def open(self, path: Path) -> File:
        """An existing file, for reading."""
        self.attempt("open", path)
        return FaultyFile(self, self._inner.open(path), path)

    def create(self, path: Path) -> File:
        """A new file, for reading and writing."""
        self.attempt("create", path)
        file = FaultyFile(self, self._inner.create(path), path)
        self._open.add(file)
        return file

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; replaces the target."""
        self.attempt("rename", target)
        self._inner.rename(source, target)
        for file in self._open:
            if file.path == source:
                file.path = target

    def map(self, path: Path) -> memoryview:
        """A finished file as memory."""
        self.attempt("map", path)
        return self._inner.map(path)

    def protect(self, path: Path) -> None:
        """Makes a finished file read-only."""
        self.attempt("protect", path)
        self._inner.protect(path)

    def link(self, source: Path, target: Path) -> None:
        """A second name for the same file."""
        self.attempt("link", target)
        self._inner.link(source, target)

    def remove(self, path: Path) -> None:
        """Unlinks it."""
        self.attempt("remove", path)
        self._inner.remove(path)

    def names(self, folder: Path) -> list[str]:
        """What is in the folder."""
        return self._inner.names(folder)

    def make_folder(self, folder: Path) -> None:
        """Makes the folder and its parents."""
        self.attempt("make_folder", folder)
        self._inner.make_folder(folder)

    def sync_folder(self, folder: Path) -> None:
        """Makes the names in it durable."""
        self.attempt("sync_folder", folder)
        self._inner.sync_folder(folder)

    def lock(self, path: Path) -> Lock:
        """Takes the lock."""
        return self._inner.lock(path)

    # --- for its files -------------------------------------------------------------------------

    def attempt(self, operation: str, path: Path) -> None:
        """Raises if the operation is to fail."""
        if (fault := self.due(operation, path)) is not None:
            raise OSError(fault.error, os.strerror(fault.error), str(path))

    def due(self, operation: str, path: Path) -> Fault | None:
        """The fault that hits this operation now, after any gate before it."""
        for gate in self._gates:
            if gate.operation == operation and fnmatch(path.name, gate.name):
                gate.pass_through()
        for fault in self._faults:
            if fault.operation == operation and fnmatch(path.name, fault.name):
                if fault.after > 0:
                    fault.after -= 1
                elif fault.times is None or fault.hits < fault.times:
                    fault.hits += 1
                    return fault
        return None


class FaultyFile:
    """An open file whose operations may fail."""

    def __init__(self, files: FaultyFiles, inner: File, path: Path) -> None:
        self._files = files
        self._inner = inner
        self.path = path

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes."""
        self._files.attempt("pread", self.path)
        return self._inner.pread(length, position)

    def pwrite(self, pieces: Sequence[Buffer], position: int) -> None:
        """Writes, or writes a part and fails."""
        fault = self._files.due("pwrite", self.path)
        if fault is None:
            self._inner.pwrite(pieces, position)
            return
        if fault.partly:
            self._inner.pwrite([b"".join(pieces)[: fault.partly]], position)
        raise OSError(fault.error, os.strerror(fault.error), str(self.path))

    def truncate(self, size: int) -> None:
        """Cuts or extends with zeros."""
        self._files.attempt("truncate", self.path)
        self._inner.truncate(size)

    def sync(self) -> None:
        """Syncs; a failed one loses the dirty pages where the file system below models that."""
        try:
            self._files.attempt("sync", self.path)
        except OSError:
            getattr(self._inner, "drop_dirty_pages", _nothing)()
            raise
        self._inner.sync()

    def size(self) -> int:
        """The length in bytes."""
        return self._inner.size()

    def close(self) -> None:
        """Gives the handle back."""
        self._inner.close()


def _nothing() -> None:
    """A file system that has no model of its page cache."""
