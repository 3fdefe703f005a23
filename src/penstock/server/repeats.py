"""Remembers the requests that are durable, so that a retried one is not stored twice.

A client that gets no answer in time sends its request again, byte for byte. A table of digests in
a file that all workers map says which requests are stored; it outlives them. What it forgets, or
loses with the power, only costs a second copy.

    file  := header[64] entry*
    header:= "PNSTKRPT" version:u16 reserved entries:u32
    entry := digest[24] time_ms:u64
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import mmap
import os
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from penstock.model.clock import Clock
    from penstock.otel.signals import Signal
    from penstock.server.config import Dedupe

_MAGIC: Final = b"PNSTKRPT"
_VERSION: Final = 1
_HEADER = struct.Struct("<8sHHI")
_HEADER_BYTES: Final = 64
_DIGEST_BYTES: Final = 24
_TIME = struct.Struct("<Q")
ENTRY_BYTES: Final = _DIGEST_BYTES + _TIME.size
_WAYS: Final = 8
"""An entry may stand in any of so many places; the oldest of them gives way."""


class Table:
    """The digests of one topic, shared by all workers."""

    def __init__(self, path: Path, entries: int) -> None:
        self._sets = max(1, entries // _WAYS)
        size = _HEADER_BYTES + self._sets * _WAYS * ENTRY_BYTES
        head = _HEADER.pack(_MAGIC, _VERSION, 0, self._sets * _WAYS)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _open(path, size, head)
        try:
            self._map = mmap.mmap(handle, size)
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)  # the map has a handle of its own
            os.close(handle)

    def has(self, digest: bytes, since_ms: int) -> bool:
        """Whether the request was stored at or after that time."""
        for at in self._places(digest):
            if self._map[at : at + _DIGEST_BYTES] == digest:
                return self._time(at) >= since_ms
        return False

    def add(self, digest: bytes, now_ms: int) -> None:
        """Remembers it, in the place of the oldest that could stand here."""
        places = self._places(digest)
        known = [at for at in places if self._map[at : at + _DIGEST_BYTES] == digest]
        at = known[0] if known else min(places, key=self._time)
        self._map[at : at + ENTRY_BYTES] = digest + _TIME.pack(now_ms)

    def close(self) -> None:
        """Gives the memory back; the file stays."""
        self._map.close()

    def _places(self, digest: bytes) -> list[int]:
        first = int.from_bytes(digest[:8], "little") % self._sets * _WAYS
        return [_HEADER_BYTES + (first + way) * ENTRY_BYTES for way in range(_WAYS)]

    def _time(self, at: int) -> int:
        found: int = _TIME.unpack_from(self._map, at + _DIGEST_BYTES)[0]
        return found


def _open(path: Path, size: int, head: bytes) -> int:
    """The file, locked; a new one where there is none of this size and version."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(handle, fcntl.LOCK_EX)
        found = os.fstat(handle)
        if found.st_nlink and found.st_size == size and os.pread(handle, len(head), 0) == head:
            return handle
        if found.st_nlink and not found.st_size:
            os.ftruncate(handle, size)
            os.pwrite(handle, head, 0)
            return handle
        if found.st_nlink:
            path.unlink()  # not cut: another worker may have it mapped, and would die of that
        os.close(handle)


class Repeats:
    """One worker's view of all tables."""

    def __init__(self, settings: Dedupe, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._tables: dict[Path, Table] = {}
        self._under_way: dict[tuple[Path, bytes], asyncio.Future[None]] = {}
        self.hits = 0

    @contextlib.asynccontextmanager
    async def once(self, signal: Signal, folder: Path, data: bytes) -> AsyncIterator[bool]:
        """True: store the request; it is remembered when the block ends well. False: it is stored.

        The same request that is just being stored is waited for; should that fail, the next one
        that waits stores it.
        """
        if not self._settings.window or signal.value not in self._settings.signals:
            yield True
            return
        table = self._table(folder)
        digest = hashlib.sha256(data).digest()[:_DIGEST_BYTES]
        key = (folder, digest)
        while (first := self._under_way.get(key)) is not None:
            await asyncio.wait([first])
        now_ms = self._clock.wall_ns() // 10**6
        if table.has(digest, now_ms - int(self._settings.window * 1000)):
            self.hits += 1
            yield False
            return
        self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            yield True
            table.add(digest, now_ms)
        finally:
            self._under_way.pop(key).set_result(None)

    def close(self) -> None:
        """Lets go of the tables."""
        for table in self._tables.values():
            table.close()
        self._tables.clear()

    def _table(self, folder: Path) -> Table:
        table = self._tables.get(folder)
        if table is None:
            path = folder / "repeats.tbl"
            table = self._tables[folder] = Table(path, self._settings.entries)
        return table
