"""Remembers the requests that are durable, so that a retried one is not stored twice.

A client that gets no answer in time sends its request again, byte for byte. Tables of digests in
files that all workers share, for all topics, say which requests are stored; they outlive them. What
they forget, have no room for, or lose with the power, only costs a second copy.

There is one table until requests would be forgotten before their time; those go to a second one of
four times its size, and so on. So memory and disk are those of the requests of a window, 32 bytes
each, up to a bound, and files have holes where nothing was stored yet. They are read and written by
calls and not mapped: a hole that a full disk has no room for is an error then, and no signal that
ends the worker.

    file  := header[64] entry*
    header:= "PNSTKRPT" version:u16 reserved entries:u32
    entry := digest[24] time_ms:u64
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.model.errors import Damaged, UnsupportedVersion
from penstock.server.capping import tables_cap
from penstock.storage.access import file_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.model.clock import Clock
    from penstock.otel.signals import Signal
    from penstock.server.configuration.config import Config, Dedupe

_LOG = logging.getLogger(__name__)
NAME: Final = "repeats.tbl"
"""In the data directory; those that follow have a number before the dot."""
_SAY_AGAIN_MS: Final = 60_000
_MAGIC: Final = b"PNSTKRPT"
VERSION: Final = 1
_HEADER = struct.Struct("<8sHHI")
_HEADER_BYTES: Final = 64
_DIGEST_BYTES: Final = 24
_TIME = struct.Struct("<Q")
ENTRY_BYTES: Final = _DIGEST_BYTES + _TIME.size
_WAYS: Final = 8
"""An entry may stand in any of so many places; the oldest of them gives way."""
_SET_BYTES: Final = _WAYS * ENTRY_BYTES
_SETS_AT_ONCE: Final = 4096
_TIMES: Final = struct.Struct("<" + f"{_DIGEST_BYTES}xQ" * _WAYS)
FIRST_ENTRIES: Final = 65_536
_GROWTH: Final = 4


class Table:
    """Digests in one file, shared by all workers. OSError where the disk fails, or is full."""

    def __init__(self, path: Path, entries: int) -> None:
        self._sets = max(1, entries // _WAYS)
        head = _HEADER.pack(_MAGIC, VERSION, 0, self._sets * _WAYS)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = _open(path, table_bytes(entries), head)
        fcntl.flock(self._handle, fcntl.LOCK_UN)

    def has(self, digest: bytes, since_ms: int) -> bool:
        """Whether the request was stored at or after that time."""
        places = self._places(digest)
        at = _find(places, digest)
        return at is not None and _TIMES.unpack(places)[at] >= since_ms

    def add(self, digest: bytes, now_ms: int, since_ms: int | None = None) -> bool:
        """Remembers it, in the place of the oldest that could stand here.

        False, and nothing is done, where that was stored at or after `since_ms`.
        """
        places = self._places(digest)
        at = _find(places, digest)
        if at is None:
            times = _TIMES.unpack(places)
            oldest_ms = min(times)
            if since_ms is not None and oldest_ms >= since_ms:
                return False
            at = times.index(oldest_ms)
        entry = digest + _TIME.pack(now_ms)
        os.pwrite(self._handle, entry, self._first(digest) + at * ENTRY_BYTES)
        return True

    def is_full_at(self, digest: bytes) -> bool:
        """Whether there was ever no room left for it; that never changes back."""
        return all(_TIMES.unpack(self._places(digest)))

    def close(self) -> None:
        """The file stays."""
        os.close(self._handle)

    def _first(self, digest: bytes) -> int:
        """Of the places where it may stand."""
        return _HEADER_BYTES + int.from_bytes(digest[:8], "little") % self._sets * _SET_BYTES

    def _places(self, digest: bytes) -> bytes:
        """What stands there. Padded: whoever cut the file took the rest."""
        return os.pread(self._handle, _SET_BYTES, self._first(digest)).ljust(_SET_BYTES, b"\0")


def table_bytes(entries: int) -> int:
    """How long the file of a table is."""
    return _HEADER_BYTES + max(1, entries // _WAYS) * _SET_BYTES


def _find(places: bytes, digest: bytes) -> int | None:
    at = places.find(digest)
    while at >= 0 and at % ENTRY_BYTES:  # across two entries, by chance
        at = places.find(digest, at + 1)
    return at // ENTRY_BYTES if at >= 0 else None


class Survey(NamedTuple):
    """What a table holds."""

    entries: int
    """So many it has room for."""
    requests: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0


def survey_table(path: Path) -> Survey:
    """Safe beside workers. Damaged: it is no table, or not all of one; there is no checksum."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # whoever begins a table has it to himself until it is one
        head, length = file.read(_HEADER_BYTES), os.fstat(file.fileno()).st_size
        fcntl.flock(file, fcntl.LOCK_UN)
        if not any(head):  # its maker was killed at that, and the next one begins it
            return Survey(0)
        if len(head) < _HEADER_BYTES or not head.startswith(_MAGIC):
            raise Damaged("not a table of requests")
        _, version, _, entries = _HEADER.unpack_from(head)
        if version != VERSION:
            raise UnsupportedVersion(f"table version {version}, this Penstock reads {VERSION}")
        size = _HEADER_BYTES + entries * ENTRY_BYTES
        if length != size or entries % _WAYS:
            raise Damaged(f"the table has {length} bytes, not {size}")
        return _survey(entries, iter(lambda: file.read(_SETS_AT_ONCE * _SET_BYTES), b""))


def _survey(entries: int, pieces: Iterator[bytes]) -> Survey:
    requests, oldest_ms, newest_ms = 0, 0, 0
    for piece in pieces:
        times = [time_ms for each in _TIMES.iter_unpack(piece) for time_ms in each if time_ms]
        if times:
            requests += len(times)
            oldest_ms = min(oldest_ms or times[0], *times)
            newest_ms = max(newest_ms, *times)
    return Survey(entries, requests, oldest_ms, newest_ms)


def _open(path: Path, size: int, head: bytes) -> int:
    """The file, locked; a new one where there is none of this size and version."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, file_mode())
        fcntl.flock(handle, fcntl.LOCK_EX)
        found = os.fstat(handle)
        if found.st_nlink and found.st_size == size and os.pread(handle, len(head), 0) == head:
            return handle
        if found.st_nlink and not found.st_size:
            try:
                os.ftruncate(handle, size)
                os.pwrite(handle, head, 0)
            except OSError:  # without its head it is none, and the next one begins it
                os.close(handle)
                raise
            return handle
        if found.st_nlink:
            path.unlink()  # not cut: another worker may be using it
        os.close(handle)


class Tables:
    """All digests: each table takes what the one before has no room for.

    Invariant: a digest is in the first table whose places for it were not all taken when it came,
    so whoever looks for it may stop at the first that has one left.
    """

    def __init__(self, path: Path, entries: int, window_ms: int) -> None:
        self._path = path
        self._window_ms = window_ms
        self._sizes = list(_sizes(entries))
        self._tables: list[Table] = []

    def has(self, digest: bytes, now_ms: int) -> bool:
        """Whether the request was stored within the window."""
        since_ms = now_ms - self._window_ms
        for number in range(len(self._sizes)):
            table = self._table(number)
            if table.has(digest, since_ms):
                return True
            if not table.is_full_at(digest):
                break
        return False

    def add(self, digest: bytes, now_ms: int) -> None:
        """Remembers it; the last table forgets its oldest for that, if it must."""
        since_ms = now_ms - self._window_ms
        for number in range(len(self._sizes) - 1):
            if self._table(number).add(digest, now_ms, since_ms):
                return
        self._table(len(self._sizes) - 1).add(digest, now_ms)

    def close(self) -> None:
        """Gives the memory back; the files stay."""
        for table in self._tables:
            table.close()

    def _table(self, number: int) -> Table:
        while len(self._tables) <= number:
            level = len(self._tables)
            self._tables.append(Table(_path(self._path, level), self._sizes[level]))
        return self._tables[number]


def _path(first: Path, level: int) -> Path:
    return first.with_stem(f"{first.stem}-{level}") if level else first


def bounded_dedupe(config: Config) -> Dedupe:
    """As many requests are remembered as the tables' part of `retention.size_cap` has room for."""
    cap = tables_cap(config)
    if cap is None:
        return config.dedupe
    return replace(config.dedupe, entries=min(config.dedupe.entries, cap // ENTRY_BYTES))


def remove_unused(root: Path, settings: Dedupe) -> None:
    """Tables of other sizes, and those that each topic had before. Nobody may have one open."""
    sizes = list(_sizes(settings.entries)) if settings.window else []
    wanted = {_path(root / NAME, level): table_bytes(size) for level, size in enumerate(sizes)}
    for path in (*root.glob("repeats*.tbl"), *root.glob("topics/*/*/repeats*.tbl")):
        if wanted.get(path) != path.stat().st_size:
            # They only save second copies: without one a request of the window is stored again.
            path.unlink()


def _sizes(entries: int) -> Iterator[int]:
    """Of the tables, one after another; of all together at most `entries`."""
    size, left = FIRST_ENTRIES, entries
    while True:
        yield min(size, max(left, _WAYS))
        left -= size
        size *= _GROWTH
        if left < _WAYS:
            return


class Storing:
    """A request that is to be stored, until `end`. Copies of it wait for that."""

    __slots__ = ("_began_ms", "_digest", "_over", "_remember", "_under_way")

    def __init__(
        self,
        remember: Callable[[bytes, int], None],
        under_way: dict[bytes, Storing],
        digest: bytes,
        began_ms: int,
    ) -> None:
        self._remember = remember
        self._under_way = under_way
        self._digest = digest
        self._began_ms = began_ms
        self._over: asyncio.Event | None = None
        under_way[digest] = self

    def end(self, *, stored: bool) -> None:
        """Remembers the request if it is durable; otherwise one of its copies may be stored."""
        if stored:
            self._remember(self._digest, self._began_ms)
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

    def __init__(self, settings: Dedupe, root: Path, clock: Clock) -> None:
        self._signals = frozenset(settings.signals if settings.window else ())
        self._root = root.absolute()  # as a store names its folder
        self._tables = Tables(root / NAME, settings.entries, int(settings.window * 1000))
        self._clock = clock
        self._topics: dict[Path, hashlib._Hash] = {}
        self._under_way: dict[bytes, Storing] = {}
        self._said_ms = 0
        self.hits = 0
        self.unremembered = 0
        """Requests that are stored, and would be stored again: the tables have no room."""

    async def begin(self, signal: Signal, partition: Path, data: bytes) -> Storing | None:
        """What to end when the request is stored, or could not be; None: it is stored already.

        The same request that is just being stored is waited for; should that fail, the next one
        that waits stores it. All partitions of a topic are one.
        """
        if signal.value not in self._signals:
            return _NOT_REMEMBERED
        digest = self._digest(partition, data)
        while (first := self._under_way.get(digest)) is not None:
            await first.over()
        now_ms = self._clock.wall_ns() // 10**6
        if self._is_stored(digest, now_ms):
            self.hits += 1
            return None
        return Storing(self._remember, self._under_way, digest, now_ms)

    def close(self) -> None:
        """Lets go of the tables."""
        self._tables.close()

    def _digest(self, partition: Path, data: bytes) -> bytes:
        topic = self._topics.get(partition)
        if topic is None:
            name = partition.parent.relative_to(self._root).as_posix()
            topic = self._topics[partition] = hashlib.sha256(name.encode() + b"\0")
        made = topic.copy()
        made.update(data)
        return made.digest()[:_DIGEST_BYTES]

    def _is_stored(self, digest: bytes, now_ms: int) -> bool:
        try:
            return self._tables.has(digest, now_ms)
        except OSError as error:
            self._say(error, now_ms)
            return False

    def _remember(self, digest: bytes, now_ms: int) -> None:
        """Never fails: the request is durable, and its client is told so in any case."""
        try:
            self._tables.add(digest, now_ms)
        except OSError as error:
            self.unremembered += 1
            self._say(error, now_ms)

    def _say(self, error: OSError, now_ms: int) -> None:
        if now_ms - self._said_ms >= _SAY_AGAIN_MS:
            self._said_ms = now_ms
            text = "requests are not remembered, and stored again when they are sent again: %s"
            _LOG.warning(text, error)
