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
import fcntl
import hashlib
import mmap
import os
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
_SET_BYTES: Final = _WAYS * ENTRY_BYTES


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
        at = self._find(digest)
        return at is not None and self._time(at) >= since_ms

    def add(self, digest: bytes, now_ms: int) -> None:
        """Remembers it, in the place of the oldest that could stand here."""
        at = self._find(digest)
        if at is None:
            first = self._first(digest)
            at = min(range(first, first + _SET_BYTES, ENTRY_BYTES), key=self._time)
        self._map[at : at + ENTRY_BYTES] = digest + _TIME.pack(now_ms)

    def close(self) -> None:
        """Gives the memory back; the file stays."""
        self._map.close()

    def _first(self, digest: bytes) -> int:
        """Of the places where it may stand."""
        return _HEADER_BYTES + int.from_bytes(digest[:8], "little") % self._sets * _SET_BYTES

    def _find(self, digest: bytes) -> int | None:
        first = self._first(digest)
        at = self._map.find(digest, first, first + _SET_BYTES)
        while at >= 0 and (at - first) % ENTRY_BYTES:  # across two entries, by chance
            at = self._map.find(digest, at + 1, first + _SET_BYTES)
        return at if at >= 0 else None

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


class Storing:
    """A request that is to be stored, until `end`. Copies of it wait for that."""

    __slots__ = ("_began_ms", "_digest", "_over", "_table", "_under_way")

    def __init__(
        self, table: Table, under_way: dict[bytes, Storing], digest: bytes, began_ms: int
    ) -> None:
        self._table = table
        self._under_way = under_way
        self._digest = digest
        self._began_ms = began_ms
        self._over: asyncio.Event | None = None
        under_way[digest] = self

    def end(self, *, stored: bool) -> None:
        """Remembers the request if it is durable; otherwise one of its copies may be stored."""
        if stored:
            self._table.add(self._digest, self._began_ms)
        del self._under_way[self._digest]
        if self._over is not None:
            self._over.set()

    async def over(self) -> None:
        """Returns when it has ended, well or not."""
        if self._over is None:
            self._over = asyncio.Event()
        await self._over.wait()


class _NotRemembered(Storing):
    """Of a signal whose copies are not looked for."""

    __slots__ = ()

    def __init__(self) -> None:
        """Has no table."""

    def end(self, *, stored: bool) -> None:
        """Nobody waits for it."""


_NOT_REMEMBERED: Final = _NotRemembered()


class Repeats:
    """One worker's view of all tables."""

    def __init__(self, settings: Dedupe, clock: Clock) -> None:
        self._signals = frozenset(settings.signals if settings.window else ())
        self._window_ms = int(settings.window * 1000)
        self._entries = settings.entries
        self._clock = clock
        self._tables: dict[Path, tuple[Table, dict[bytes, Storing]]] = {}
        self.hits = 0

    async def begin(self, signal: Signal, partition: Path, data: bytes) -> Storing | None:
        """What to end when the request is stored, or could not be; None: it is stored already.

        The same request that is just being stored is waited for; should that fail, the next one
        that waits stores it. All partitions of a topic share a table.
        """
        if signal.value not in self._signals:
            return _NOT_REMEMBERED
        table, under_way = self._tables.get(partition) or self._open(partition)
        digest = hashlib.sha256(data).digest()[:_DIGEST_BYTES]
        while (first := under_way.get(digest)) is not None:
            await first.over()
        now_ms = self._clock.wall_ns() // 10**6
        if table.has(digest, now_ms - self._window_ms):
            self.hits += 1
            return None
        return Storing(table, under_way, digest, now_ms)

    def close(self) -> None:
        """Lets go of the tables."""
        for table, _ in self._tables.values():
            table.close()
        self._tables.clear()

    def _open(self, partition: Path) -> tuple[Table, dict[bytes, Storing]]:
        table = Table(partition.parent / "repeats.tbl", self._entries)
        opened = self._tables[partition] = (table, {})
        return opened
