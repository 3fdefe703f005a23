"""Folders of use only while a process lives: Spark's blocks, what queries spill.

    TMP/penstock-<user id>/<kind>-<random>/       the folder
    TMP/penstock-<user id>/<kind>-<random>.lock   locked by whoever uses it

The system lets go of a lock when the last process that has it ends, however it ends. So a folder
whose lock can be taken belongs to nobody, and the next process that needs one of its own removes
it. Others' users have other places, and nothing without a lock file is touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.model.errors import LogLocked
from penstock.storage.files import LocalFiles, LocalLock

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_LOCK: Final = ".lock"


class Scratch:
    """A new empty folder, which is removed at the end of the block, by `remove`, or by others.

    A child process that goes on using it when this one is killed is given `fileno()` to inherit.
    """

    def __init__(self, kind: str) -> None:
        _sweep_once()
        base = _base()
        self._owner = os.getpid()
        while True:
            self.path = base / f"{kind}-{secrets.token_hex(8)}"
            held = _held(_lock_of(self.path))
            if held is not None:
                break
        # Only now: from here on nobody takes it for a leftover.
        self._lock = held
        self.path.mkdir(mode=0o700)

    def fileno(self) -> int:
        """The handle of the lock; the folder stays as long as any process has it."""
        return self._lock.fileno()

    def remove(self) -> None:
        """Idempotent; nothing where a fork of its process does so."""
        if os.getpid() == self._owner and not self._lock.released:
            _remove(self.path)
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Removes it."""
        self.remove()


def sweep() -> int:
    """Removes the folders whose users are gone; how many. Safe beside all that live."""
    swept = 0
    for file in _base().glob(f"*{_LOCK}"):
        lock = _held(file)
        if lock is not None:
            # The lock is ours, so no process uses the folder, and none will: names are not reused.
            _remove(file.with_suffix(""))
            lock.release()
            swept += 1
    return swept


@cache
def _sweep_once() -> None:
    sweep()


def _held(file: Path) -> LocalLock | None:
    """The lock, unless somebody has it, or has just removed its file as a leftover."""
    try:
        lock = LocalFiles().lock(file)
    except LogLocked:
        return None
    if os.fstat(lock.fileno()).st_nlink:
        return lock
    lock.release()
    return None


def _remove(folder: Path) -> None:
    """The lock file goes last: a removal that is cut off is gone on with."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        with contextlib.suppress(FileNotFoundError):
            _lock_of(folder).unlink()


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _LOCK)


def _base() -> Path:
    """Of this user alone; one that somebody else has put there is not used."""
    base = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o700)
    state = base.lstat()
    if stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o077:
        return base
    return _base_apart()


@cache
def _base_apart() -> Path:
    return Path(tempfile.mkdtemp(prefix="penstock-"))
