"""The seam between Penstock and the file system.

`Files` and `File` hold the few operations that durability is made of, so that tests can lose power,
fail an fsync or fill the disk. `LocalFiles` is the real one: Linux first, macOS with `F_FULLFSYNC`,
Windows without positioned reads and folder syncs.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import sys
import threading
import time
from typing import TYPE_CHECKING, Protocol, TypeAlias

from penstock.model.errors import LogLocked
from penstock.storage.access import file_mode, finished_mode, folder_mode

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Buffer: TypeAlias = bytes | memoryview

OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a full disk: nothing is wrong with the file, and space may come back."""
OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})
"""The process or the machine has no descriptor left: nothing was opened, and one may come back."""
_DESCRIPTOR_S = 5.0
_LOOK_AGAIN_S = 0.05

_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe would wait for somebody who writes to it."""


class File(Protocol):
    """An open file, read and written at positions. Not safe for two writers at once."""

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, pieces: Sequence[Buffer], position: int) -> None:
        """Writes the pieces one behind the other; an error may leave any part written."""
        ...

    def truncate(self, size: int) -> None:
        """Cuts or extends with zeros."""
        ...

    def sync(self) -> None:
        """Returns when contents and size would survive a power loss. Never retry a failed one."""
        ...

    def size(self) -> int:
        """The length in bytes."""
        ...

    def close(self) -> None:
        """Gives the handle back; syncs nothing."""
        ...


class Files(Protocol):
    """The file system."""

    def open(self, path: Path) -> File:
        """An existing file, for reading."""
        ...

    def create(self, path: Path) -> File:
        """A new file, for reading and writing; what stood there before is gone."""
        ...

    def map(self, path: Path) -> memoryview:
        """A finished file as memory, read when it is touched; outlives the file's removal."""
        ...

    def protect(self, path: Path) -> None:
        """Makes a finished file read-only; it can still be renamed and removed."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; replaces the target. Durable after `sync_folder`."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """A second name for the same file; FileExistsError where the name is taken."""
        ...

    def remove(self, path: Path) -> None:
        """Durable after `sync_folder`. Open handles go on reading."""
        ...

    def names(self, folder: Path) -> list[str]:
        """What is in the folder, sorted; empty where there is no folder."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Makes the folder and its parents, each durably."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Returns when creations, renames and removals in it would survive a power loss."""
        ...

    def lock(self, path: Path) -> Lock:
        """Takes the lock at `path` for this process, or raises LogLocked with the holder's pid."""
        ...


class Lock(Protocol):
    """An exclusive hold on a folder. Ends with `release` or with the process."""

    def release(self) -> None:
        """Lets the next one in."""
        ...


def read_whole(files: Files, path: Path) -> bytes:
    """The contents of a small file."""
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def write_atomically(files: Files, path: Path, data: bytes) -> None:
    """Replaces a file: after a crash it holds all of the old or all of the new."""
    scratch = path.with_name(path.name + ".tmp")
    file = files.create(scratch)
    try:
        file.pwrite([data], 0)
        file.sync()
    except OSError as error:
        if error.errno in OUT_OF_SPACE:  # a part of it would take the room that there is
            with contextlib.suppress(OSError):
                files.remove(scratch)
        raise
    finally:
        file.close()
    files.rename(scratch, path)
    files.sync_folder(path.parent)  # so that the rename survives


def _opened(path: Path) -> int:
    """For reading. A file, and nothing else that is there by its name: a pipe would never end."""
    handle = os.open(path, os.O_RDONLY | _BINARY | _AT_ONCE)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def _folder_handle(folder: Path) -> int:
    """Waits a while for a descriptor: what was renamed is renamed, and its caller cannot go back.

    Nothing was synced yet, so this is no second try of a failed fsync.
    """
    until = time.monotonic() + _DESCRIPTOR_S
    while True:
        try:
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            if error.errno not in OUT_OF_FILES or time.monotonic() > until:
                raise
        time.sleep(_LOOK_AGAIN_S)


class LocalFiles:
    """The machine's file system."""

    def open(self, path: Path) -> File:
        """An existing file, for reading."""
        return _local_file(_opened(path))

    def create(self, path: Path) -> File:
        """A new file, for reading and writing."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | _BINARY
        return _local_file(os.open(path, flags, file_mode()))

    def map(self, path: Path) -> memoryview:
        """A finished file as memory. An empty file is empty memory, which cannot be mapped."""
        handle = _opened(path)
        try:
            if os.fstat(handle).st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(handle)

    def protect(self, path: Path) -> None:
        """Takes everyone's permission to write."""
        path.chmod(finished_mode())

    def rename(self, source: Path, target: Path) -> None:
        """Atomic on one file system."""
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """A second name for the same file."""
        target.hardlink_to(source)

    def remove(self, path: Path) -> None:
        """Unlinks it."""
        path.unlink()

    def names(self, folder: Path) -> list[str]:
        """What is in the folder, sorted; empty where there is no folder."""
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, folder: Path) -> None:
        """Makes the folder and its parents, each durably."""
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        folder.mkdir(folder_mode(), exist_ok=True)
        self.sync_folder(folder.parent)

    def sync_folder(self, folder: Path) -> None:
        """Syncs the folder; Windows keeps its folders durable by itself."""
        if sys.platform == "win32":
            return
        handle = _folder_handle(folder)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def lock(self, path: Path) -> LocalLock:
        """Takes the lock at `path`, which then holds this process's id."""
        return LocalLock(path)


class _PosixFile:
    """Positioned reads and writes; Python itself goes on after EINTR."""

    __slots__ = ("_handle",)

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._handle, length, position)
        if len(data) == length or not data:
            return data
        pieces = [data]
        missing = length - len(data)
        while missing and (data := os.pread(self._handle, missing, position + length - missing)):
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)

    def pwrite(self, pieces: Sequence[Buffer], position: int) -> None:
        for start in range(0, len(pieces), _MAX_PIECES):
            some = pieces[start : start + _MAX_PIECES]
            size = sum(map(len, some))
            written = os.pwritev(self._handle, some, position)
            if written < size:
                self._write_rest(b"".join(some), written, position)
            position += size

    def _write_rest(self, data: bytes, written: int, position: int) -> None:
        rest = memoryview(data)
        while written < len(data):
            step = os.pwrite(self._handle, rest[written:], position + written)
            if step == 0:
                raise OSError(errno.ENOSPC, "the file system took no more bytes")
            written += step

    def truncate(self, size: int) -> None:
        os.ftruncate(self._handle, size)

    def sync(self) -> None:
        if sys.platform == "darwin":  # pragma: no cover - fsync there stops at the drive's cache
            fcntl.fcntl(self._handle, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(self._handle)

    def size(self) -> int:
        return os.fstat(self._handle).st_size

    def close(self) -> None:
        os.close(self._handle)


class _SeekingFile:
    """For systems without positioned reads and writes: a lock around seek and use."""

    __slots__ = ("_handle", "_lock")

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._lock = threading.Lock()

    def pread(self, length: int, position: int) -> bytes:
        with self._lock:
            os.lseek(self._handle, position, os.SEEK_SET)
            pieces = []
            while length and (data := os.read(self._handle, length)):
                pieces.append(data)
                length -= len(data)
        return b"".join(pieces)

    def pwrite(self, pieces: Sequence[Buffer], position: int) -> None:
        rest = memoryview(b"".join(pieces))
        with self._lock:
            os.lseek(self._handle, position, os.SEEK_SET)
            while rest:
                rest = rest[os.write(self._handle, rest) :]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._handle, size)

    def sync(self) -> None:
        os.fsync(self._handle)

    def size(self) -> int:
        return os.fstat(self._handle).st_size

    def close(self) -> None:
        os.close(self._handle)


def _local_file(handle: int) -> File:
    return _PosixFile(handle) if hasattr(os, "pwritev") else _SeekingFile(handle)


class LocalLock:
    """An advisory lock that the system releases when its process dies, however it dies."""

    def __init__(self, path: Path) -> None:
        self.released = False
        flags = os.O_RDWR | os.O_CREAT | _BINARY | getattr(os, "O_NOFOLLOW", 0)
        self._handle = os.open(path, flags, file_mode())
        try:
            _lock_handle(self._handle)
        except OSError:
            pid = self._holder()
            os.close(self._handle)
            by = f"process {pid}" if pid else "another process"
            raise LogLocked(f"{path.parent} is in use by {by}", pid=pid) from None
        with contextlib.suppress(OSError):  # a full disk: who holds it is good to know, no more
            os.ftruncate(self._handle, 0)
            os.write(self._handle, b"%d\n" % os.getpid())

    def fileno(self) -> int:
        """Its handle: a child that inherits it holds the lock too."""
        return self._handle

    def release(self) -> None:
        """Lets the next one in."""
        self.released = True
        if sys.platform != "win32":
            fcntl.flock(self._handle, fcntl.LOCK_UN)  # a forked child may hold the handle too
        os.close(self._handle)

    def _holder(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int(os.read(self._handle, 20))
        return None


_MAX_PIECES = 1024  # what Linux and macOS take at once
_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def _lock_handle(handle: int) -> None:
    if sys.platform == "win32":
        # A byte far behind the pid, so that others can still read who holds the lock.
        os.lseek(handle, 1 << 30, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
