"""Objects as files of a local folder, with compare-and-swap between processes, and durable.

A file is written aside, synced and renamed into its place. Every change of a key happens under a
lock that all processes share, and gives the file a modification time that it never had before:
that, its inode and its size are its version.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import sys
import time
import uuid
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.model.errors import (
    InvalidArgument,
    ObjectChanged,
    ObjectExists,
    ObjectMissing,
    ObjectsUnavailable,
)
from penstock.storage.access import file_mode
from penstock.storage.files import LocalFiles
from penstock.storage.objects.model import (
    RESERVED,
    Fetched,
    ObjectInfo,
    Version,
    check_key,
    check_range,
    pieces_of,
)

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from penstock.storage.files import Buffer, File, Files
    from penstock.storage.objects.model import Data

_LOCKS = 64
_PIECE_BYTES = 4 << 20
_ABANDONED_AFTER_S = 86_400.0
_NOT_A_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
_NAME_CLASHES = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP})
_TIME_STEPS_NS = (1, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)


class FolderObjects:
    """An `ObjectStore` in a folder. A key cannot be the folder of another: `a` excludes `a/b`."""

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self._root = root
        self._files = files or LocalFiles()
        self._scratch = root / RESERVED / "tmp"
        self._locks = root / RESERVED / "locks"

    async def put(self, key: str, data: Data) -> Version:
        """Writes the object, whatever stood there."""
        return await asyncio.to_thread(self._write, key, data, _anything)

    async def create(self, key: str, data: Data) -> Version:
        """Writes the object where there is none."""
        return await asyncio.to_thread(self._write, key, data, _must_be_missing)

    async def replace(self, key: str, data: Data, expected: Version) -> Version:
        """Writes the object if it is still `expected`."""

        def check(key: str, found: Version | None) -> None:
            if found != expected:
                raise ObjectChanged(f"{key} is not the version that was expected")

        return await asyncio.to_thread(self._write, key, data, check)

    async def get(self, key: str, *, unless: Version | None = None) -> Fetched | None:
        """The object; None where it is still `unless`."""
        return await asyncio.to_thread(self._get, key, unless)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`."""
        check_range(start, end)
        return await asyncio.to_thread(self._get_range, key, start, end)

    async def head(self, key: str) -> ObjectInfo:
        """What is known of the object."""
        return await asyncio.to_thread(self._head, key)

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """The objects under `prefix`, in order."""
        found = self._walk(self._root, "", prefix, after or "")
        while batch := await asyncio.to_thread(_take, found, 1000):
            for info in batch:
                yield info

    async def delete(self, *keys: str) -> None:
        """Removes them; what is missing is no error."""
        await asyncio.to_thread(self._delete, keys)

    async def stream(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes in pieces."""
        check_range(start, end)
        with _translated(key):
            file = await asyncio.to_thread(self._files.open, self._path(key))
            try:
                stop = min(file.size(), end) if end is not None else file.size()
                for position in range(start, stop, _PIECE_BYTES):
                    length = min(_PIECE_BYTES, stop - position)
                    yield await asyncio.to_thread(file.pread, length, position)
            finally:
                file.close()

    @contextlib.asynccontextmanager
    async def upload(self, key: str) -> AsyncIterator[FolderUpload]:
        """Writes an object in pieces, aside; the rename at the end shows it."""
        self._path(key)
        with _translated(key, writing=True):
            scratch, file = await asyncio.to_thread(self._begin)
        upload = FolderUpload(key, file)
        try:
            yield upload
            upload.version = await asyncio.to_thread(self._finish, key, scratch, file, _anything)
        finally:
            await asyncio.to_thread(self._discard, scratch, file)

    async def close(self) -> None:
        """Holds nothing open."""

    # --- inside, in threads --------------------------------------------------------------------

    def _write(self, key: str, data: Data, check: Callable[[str, Version | None], None]) -> Version:
        path = self._path(key)
        with _translated(key, writing=True):
            check(key, _version_at(path))  # spares the writing where it is in vain already
            scratch, file = self._begin()
            try:
                file.pwrite(pieces_of(data), 0)
                return self._finish(key, scratch, file, check)
            finally:
                self._discard(scratch, file)

    def _begin(self) -> tuple[Path, File]:
        self._files.make_folder(self._scratch)
        scratch = self._scratch / f"{uuid.uuid4()}"
        return scratch, self._files.create(scratch)

    def _finish(
        self,
        key: str,
        scratch: Path,
        file: File,
        check: Callable[[str, Version | None], None],
    ) -> Version:
        """Shows what was written as the object, if it is what `check` wants to see replaced."""
        path = self._path(key)
        with _translated(key, writing=True):
            file.sync()
            self._files.make_folder(path.parent)
            with self._locked(key):
                check(key, _version_at(path))
                version = _stamp(scratch, path)
                self._files.rename(scratch, path)
            self._files.sync_folder(path.parent)  # so that the rename survives
            return version

    def _discard(self, scratch: Path, file: File) -> None:
        file.close()
        scratch.unlink(missing_ok=True)

    def _get(self, key: str, unless: Version | None) -> Fetched | None:
        with _translated(key), self._path(key).open("rb") as file:
            info = _info(key, os.fstat(file.fileno()))
            return None if info.version == unless else Fetched(file.read(), info)

    def _get_range(self, key: str, start: int, end: int) -> bytes:
        with _translated(key):
            file = self._files.open(self._path(key))
            try:
                return file.pread(end - start, start)
            finally:
                file.close()

    def _head(self, key: str) -> ObjectInfo:
        with _translated(key):
            found = self._path(key).stat()
            _refuse_folder(found)
            return _info(key, found)

    def _delete(self, keys: tuple[str, ...]) -> None:
        folders = set()
        for key in keys:
            path = self._path(key)
            with _translated(key), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.stat()
                with self._locked(key):
                    path.unlink()
                folders.add(path.parent)
        for folder in folders:
            with _translated(str(folder)):
                self._files.sync_folder(folder)

    def _walk(self, folder: Path, above: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Files below, in the order of their keys; folders that cannot matter are not opened."""
        for name, is_folder in _entries(folder):
            key = above + name
            if is_folder:
                if key == f"{RESERVED}/" or (key < after and not after.startswith(key)):
                    continue
                if key.startswith(prefix) or prefix.startswith(key):
                    yield from self._walk(folder / name, key, prefix, after)
            elif key.startswith(prefix) and key > after:
                with contextlib.suppress(FileNotFoundError):  # removed just now
                    yield _info(key, (folder / name).stat())

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """One change at a time of a key; of others too that share its lock."""
        if sys.platform == "win32":
            raise InvalidArgument("objects in a local folder need a system with flock")
        self._files.make_folder(self._locks)
        lock = self._locks / f"{zlib.crc32(key.encode()) % _LOCKS:02d}"
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, file_mode())
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)


class FolderUpload:
    """A file that nobody sees yet."""

    def __init__(self, key: str, file: File) -> None:
        self.version: Version | None = None
        self._key = key
        self._file = file
        self._end = 0

    async def write(self, data: Buffer) -> None:
        """Adds bytes at the end."""
        with _translated(self._key, writing=True):
            await asyncio.to_thread(self._file.pwrite, [data], self._end)
        self._end += len(data)


def remove_abandoned(root: Path) -> int:
    """Removes what writers that died a day or more ago left aside; returns how many files."""
    removed = 0
    with contextlib.suppress(FileNotFoundError):
        for scratch in (root / RESERVED / "tmp").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - scratch.stat().st_mtime > _ABANDONED_AFTER_S:
                    scratch.unlink()
                    removed += 1
    return removed


def _anything(_key: str, _found: Version | None) -> None:
    """No condition."""


def _must_be_missing(key: str, found: Version | None) -> None:
    if found is not None:
        raise ObjectExists(f"{key} exists")


def _stamp(scratch: Path, path: Path) -> Version:
    """Gives the new file a time later than the old one's, however coarse the file system's are."""
    with contextlib.suppress(FileNotFoundError):
        before = path.stat().st_mtime_ns
        for step in _TIME_STEPS_NS:
            stamp = max(time.time_ns(), before + step)
            os.utime(scratch, ns=(stamp, stamp))
            if scratch.stat().st_mtime_ns > before:
                break
        return _version(scratch.stat())
    stamp = time.time_ns()
    os.utime(scratch, ns=(stamp, stamp))
    return _version(scratch.stat())


def _version_at(path: Path) -> Version | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    _refuse_folder(found)
    return _version(found)


def _refuse_folder(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def _version(found: os.stat_result) -> Version:
    return Version(f"{found.st_mtime_ns:x}-{found.st_ino:x}-{found.st_size:x}", None)


def _info(key: str, found: os.stat_result) -> ObjectInfo:
    modified = datetime.fromtimestamp(found.st_mtime, UTC)
    return ObjectInfo(key, found.st_size, modified, _version(found))


def _entries(folder: Path) -> list[tuple[str, bool]]:
    """Names in the order of the keys they begin; a folder's name ends with its slash."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        return sorted(
            (entry.name + "/", True) if entry.is_dir() else (entry.name, False) for entry in found
        )
    return []


def _take(found: Iterator[ObjectInfo], count: int) -> list[ObjectInfo]:
    return [info for _, info in zip(range(count), found, strict=False)]


@contextlib.contextmanager
def _translated(key: str, *, writing: bool = False) -> Iterator[None]:
    """Penstock's errors for those of the system."""
    try:
        yield
    except OSError as error:
        if error.errno in _NOT_A_FILE and not writing:
            raise ObjectMissing(f"{key} does not exist") from error
        if error.errno in _NAME_CLASHES:
            text = f"{key} cannot be an object here: {error.strerror}"
            raise InvalidArgument(text) from error
        raise ObjectsUnavailable(f"{key}: {error.strerror or error}") from error
