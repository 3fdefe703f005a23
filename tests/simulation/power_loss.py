"""A file system in memory that loses power as real ones do.

It knows what was synced and what came since. `lose_power` keeps any part of the rest:

- of each 512-byte sector any version it had since the file's last sync, each sector by itself;
- of changes to a file's size a beginning, since file systems journal those in order;
- of creations, renames, links and removals any subset, but none that came after a dropped one on
  the same name. A rename is kept or dropped as a whole.

A failed sync (`drop_dirty_pages`) leaves what Linux leaves: pages that read well, count as clean,
are never written, and are gone with the power.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from penstock.model.errors import LogLocked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

    from penstock.storage.files import Buffer

SECTOR_BYTES = 512
PAGE_BYTES = 4096


class PowerLost(BaseException):
    """The machine is off: everything that was open is of the past, and nothing may catch this."""


@dataclass(frozen=True, slots=True)
class _Write:
    position: int
    data: bytes

    def apply(self, content: bytearray) -> range:
        """Changes the content; returns the bytes that changed."""
        end = self.position + len(self.data)
        if len(content) < self.position:
            content.extend(bytes(self.position - len(content)))
        content[self.position : end] = self.data
        return range(self.position, end)


@dataclass(frozen=True, slots=True)
class _Truncate:
    size: int

    def apply(self, content: bytearray) -> range:
        """Changes the content; returns the bytes that changed."""
        before = len(content)
        del content[self.size :]
        content.extend(bytes(self.size - len(content)))
        return range(min(before, self.size), max(before, self.size))


class _Inode:
    """A file's contents, as the running system sees them and as the disk holds them."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self._durable = bytes(content)
        self._changes: list[_Write | _Truncate] = []
        self._dropped_pages: set[int] = set()

    def change(self, change: _Write | _Truncate) -> None:
        touched = change.apply(self.content)
        self._changes.append(change)
        self._dropped_pages -= _units(touched, PAGE_BYTES)

    def sync(self) -> None:
        durable = bytearray(self.content)
        for page in self._dropped_pages:
            _put(durable, page, _get(self._durable, page, PAGE_BYTES), PAGE_BYTES)
        self._durable = bytes(durable[: len(self.content)])
        self._changes.clear()

    def drop_dirty_pages(self) -> None:
        """What a failed fsync does: the pages stay readable and are never written."""
        scratch = bytearray(self._durable)
        for change in self._changes:
            self._dropped_pages |= _units(change.apply(scratch), PAGE_BYTES)
        self._changes.clear()

    def after_power_loss(self, keeps: Callable[[], bool], choose: Callable[[int], int]) -> _Inode:
        """`choose(n)` picks one of n versions of a sector, the oldest first."""
        content = bytearray(self._durable)
        size, size_is_settled = len(content), False
        versions: dict[int, list[bytes]] = {}
        for change in self._changes:
            before = len(content)
            old = bytes(content)
            touched = _units(change.apply(content), SECTOR_BYTES)
            cut = False
            if len(content) != before and not size_is_settled:
                size_is_settled = not keeps()
                if not size_is_settled:
                    size, cut = len(content), len(content) < before
            for sector in touched:
                history = versions.setdefault(sector, [_get(old, sector, SECTOR_BYTES)])
                if cut:  # the blocks were given back: what they held does not return
                    history.clear()
                history.append(_get(content, sector, SECTOR_BYTES))
        survived = bytearray(self._durable)
        for sector, history in versions.items():
            _put(survived, sector, history[choose(len(history))], SECTOR_BYTES)
        _Truncate(size).apply(survived)
        return _Inode(survived)


def _units(touched: range, unit: int) -> set[int]:
    return set(range(touched.start // unit, -(-touched.stop // unit))) if touched else set()


def _get(content: bytes | bytearray, number: int, unit: int) -> bytes:
    return bytes(content[number * unit : (number + 1) * unit]).ljust(unit, b"\0")


def _put(content: bytearray, number: int, data: bytes, unit: int) -> None:
    _Write(number * unit, data).apply(content)


Names: TypeAlias = "dict[Path, _Inode]"


@dataclass(frozen=True, slots=True)
class _FolderChange:
    """One creation, rename, link or removal."""

    names: frozenset[Path]
    takes: Path | None = None
    gives: Path | None = None
    inode: _Inode | None = None

    def apply(self, names: Names) -> None:
        if self.takes is not None:
            names.pop(self.takes, None)
        if self.gives is not None and self.inode is not None:
            names[self.gives] = self.inode


@dataclass(slots=True)
class _Disk:
    names: Names = field(default_factory=dict)
    durable_names: Names = field(default_factory=dict)
    changes: list[_FolderChange] = field(default_factory=list)
    folders: set[Path] = field(default_factory=set)

    def change(self, change: _FolderChange) -> None:
        change.apply(self.names)
        self.changes.append(change)

    def sync_folder(self, folder: Path) -> None:
        for change in self.changes:
            if any(name.parent == folder for name in change.names):
                change.apply(self.durable_names)
        self.changes = [c for c in self.changes if all(n.parent != folder for n in c.names)]

    def after_power_loss(self, keeps: Callable[[], bool], choose: Callable[[int], int]) -> _Disk:
        names = dict(self.durable_names)
        dropped: set[Path] = set()
        for change in self.changes:
            if change.names & dropped or not keeps():
                dropped |= change.names
            else:
                change.apply(names)
        inodes = {id(inode): inode for inode in names.values()}
        survived = {key: inode.after_power_loss(keeps, choose) for key, inode in inodes.items()}
        names = {path: survived[id(inode)] for path, inode in names.items()}
        return _Disk(names, dict(names), [], set(self.folders))


class PowerLossFiles:
    """`Files` in memory. One process's view of the disk: `kill` and `lose_power` end it."""

    def __init__(self, disk: _Disk | None = None) -> None:
        self._disk = disk or _Disk()
        self._locked: set[Path] = set()
        self._steps_left: int | None = None
        self._on = True
        self.steps = 0
        """How many operations have changed or synced anything."""

    # --- what a test does to it ----------------------------------------------------------------

    def lose_power(self, random: Random) -> PowerLossFiles:
        """The file system after a power loss, which may keep nothing, all or any part unsynced."""
        self._on = False
        chance = random.choice([0.0, 0.5, 0.9, 1.0])

        def keeps() -> bool:
            return random.random() < chance

        def choose(count: int) -> int:
            return random.randrange(count) if 0 < chance < 1 else int(chance) * (count - 1)

        return PowerLossFiles(self._disk.after_power_loss(keeps, choose))

    def kill(self) -> PowerLossFiles:
        """The file system after the process died: all that was written is there, unlocked."""
        self._on = False
        return PowerLossFiles(self._disk)

    def cut_after(self, steps: int) -> None:
        """Raises PowerLost instead of the step after the next `steps`, and for ever after."""
        self._steps_left = steps

    def damage(self, path: Path, position: int, data: bytes) -> None:
        """Overwrites bytes behind everybody's back, durably."""
        inode = self._disk.names[path]
        inode.change(_Write(position, data))
        inode.sync()

    # --- Files ---------------------------------------------------------------------------------

    def open(self, path: Path) -> MemoryFile:
        """An existing file, for reading."""
        self.check_on()
        return MemoryFile(self, self._inode(path))

    def create(self, path: Path) -> MemoryFile:
        """A new file; what stood there before is gone."""
        self.step()
        self._check_folder(path.parent)
        inode = self._disk.names.get(path)
        if inode is None:
            inode = _Inode()
            self._disk.change(_FolderChange(frozenset({path}), gives=path, inode=inode))
        else:
            inode.change(_Truncate(0))
        return MemoryFile(self, inode)

    def map(self, path: Path) -> memoryview:
        """A finished file as memory."""
        self.check_on()
        return memoryview(bytes(self._inode(path).content))

    def protect(self, path: Path) -> None:
        """Nothing to do: only Penstock writes here."""
        self.check_on()
        self._inode(path)

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; replaces the target."""
        self.step()
        names, inode = frozenset({source, target}), self._inode(source)
        self._disk.change(_FolderChange(names, takes=source, gives=target, inode=inode))

    def link(self, source: Path, target: Path) -> None:
        """A second name for the same file."""
        self.step()
        if target in self._disk.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        names, inode = frozenset({source, target}), self._inode(source)
        self._disk.change(_FolderChange(names, gives=target, inode=inode))

    def remove(self, path: Path) -> None:
        """Open handles go on reading."""
        self.step()
        self._inode(path)
        self._disk.change(_FolderChange(frozenset({path}), takes=path))

    def names(self, folder: Path) -> list[str]:
        """What is in the folder, sorted."""
        self.check_on()
        return sorted(path.name for path in self._disk.names if path.parent == folder)

    def make_folder(self, folder: Path) -> None:
        """Makes the folder and its parents, each durably."""
        self.check_on()
        self._disk.folders |= {folder, *folder.parents}

    def sync_folder(self, folder: Path) -> None:
        """Makes the names in it durable."""
        self.step()
        self._check_folder(folder)
        self._disk.sync_folder(folder)

    def lock(self, path: Path) -> MemoryLock:
        """Takes the lock, or raises LogLocked."""
        self.check_on()
        if path in self._locked:
            raise LogLocked(f"{path.parent} is in use by process {os.getpid()}", pid=os.getpid())
        self._locked.add(path)
        return MemoryLock(self._locked, path)

    # --- for its files -------------------------------------------------------------------------

    def check_on(self) -> None:
        """Raises PowerLost in a world of the past."""
        if not self._on:
            raise PowerLost

    def step(self) -> None:
        """Counts an operation, or loses power instead."""
        self.check_on()
        if self._steps_left is not None:
            self._steps_left -= 1
            self._on = self._steps_left >= 0
            self.check_on()
        self.steps += 1

    def _inode(self, path: Path) -> _Inode:
        try:
            return self._disk.names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None

    def _check_folder(self, folder: Path) -> None:
        if folder not in self._disk.folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))


class MemoryFile:
    """A handle; of no use after `close` or when its world has ended."""

    def __init__(self, files: PowerLossFiles, inode: _Inode) -> None:
        self._files = files
        self._inode = inode
        self._open = True

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes."""
        self._files.check_on()
        self._check_open()
        return bytes(self._inode.content[position : position + length])

    def pwrite(self, pieces: Sequence[Buffer], position: int) -> None:
        """Writes all of it; power that is lost meanwhile leaves half of it."""
        self._check_open()
        data = b"".join(pieces)
        try:
            self._files.step()
        except PowerLost:
            self._inode.change(_Write(position, data[: len(data) // 2]))
            raise
        self._inode.change(_Write(position, data))

    def truncate(self, size: int) -> None:
        """Cuts or extends with zeros."""
        self._check_open()
        self._files.step()
        self._inode.change(_Truncate(size))

    def sync(self) -> None:
        """Makes contents and size durable, as fdatasync does, but no name."""
        self._check_open()
        self._files.step()
        self._inode.sync()

    def drop_dirty_pages(self) -> None:
        """Fails to sync, as Linux fails."""
        self._inode.drop_dirty_pages()

    def size(self) -> int:
        """The length in bytes."""
        self._files.check_on()
        self._check_open()
        return len(self._inode.content)

    def close(self) -> None:
        """Gives the handle back, in any world."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class MemoryLock:
    """Held until released or until its world ends."""

    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        """Lets the next one in."""
        self._locked.discard(self._path)
