"""Metadata in one local file, an SQLite database that many processes may use."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.model.errors import Damaged, MetadataUnavailable, UnsupportedVersion
from penstock.storage.files import LocalFiles
from penstock.storage.metadata.model import (
    Entry,
    Metadata,
    changed,
    check_changes,
    check_key,
    prefix_end,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

VERSION = 1
_WAIT_S = 10.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS entries"
    " (key BLOB PRIMARY KEY, data BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS counter (revision INTEGER NOT NULL)",
    "INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT * FROM counter)",
    f"PRAGMA user_version = {VERSION}",
)
_OLDEST_FIRST = (
    "SELECT key, data, revision FROM entries WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
)
_NEWEST_FIRST = _OLDEST_FIRST.replace("ORDER BY key", "ORDER BY key DESC")
T = TypeVar("T")


class EmbeddedMetadata(Metadata):
    """The default home. Each commit is synced; a writer waits up to ten seconds for another."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        """Opens or creates the file when it is first used.

        Without `create` nothing is found in a file that is not there, and none is made.
        """
        self._path = path
        self._create = create
        self._thread = ThreadPoolExecutor(1, "penstock-metadata")
        self._connection: sqlite3.Connection | None = None

    async def get(self, key: str) -> Entry | None:
        """What the key holds."""
        found = await self._run(self._select, check_key(key), key + "\0", 1, False)
        return found[0] if found else None

    async def range(
        self,
        prefix: str,
        *,
        start: str | None = None,
        end: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Entry]:
        """The keys of a prefix, all of one moment."""
        low = max(prefix, start or "")
        high = min(prefix_end(prefix), end) if end is not None else prefix_end(prefix)
        count = -1 if limit is None else limit
        return await self._run(self._select, low, high, count, newest_first)

    async def commit(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        conditions: Mapping[str, int | None] | None = None,
    ) -> int:
        """All changes in one transaction."""
        check_changes(puts, deletes)
        return await self._run(self._commit, dict(puts), tuple(deletes), dict(conditions or {}))

    async def close(self) -> None:
        """Closes the file."""
        if self._connection is not None:
            await self._run(self._connection.close)
            self._connection = None
        self._thread.shutdown(wait=False)

    # --- in the thread -------------------------------------------------------------------------

    async def _run(self, call: Callable[..., T], *args: Any) -> T:
        """In the one thread that has the connection; goes on there when the caller is cancelled."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _translated, self._path, call, *args)

    def _select(self, low: str, high: str, limit: int, newest_first: bool) -> list[Entry]:
        if not self._create and self._connection is None and not self._path.exists():
            return []
        rows = self._opened().execute(
            _NEWEST_FIRST if newest_first else _OLDEST_FIRST, (low.encode(), high.encode(), limit)
        )
        return [Entry(key.decode(), data, revision) for key, data, revision in rows]

    def _commit(
        self,
        puts: dict[str, bytes],
        deletes: tuple[str, ...],
        conditions: dict[str, int | None],
    ) -> int:
        with _transaction(self._opened()) as run:
            for key, expected in conditions.items():
                found = run(
                    "SELECT revision FROM entries WHERE key = ?", (key.encode(),)
                ).fetchone()
                if (found[0] if found else None) != expected:
                    raise changed(conditions)
            run("UPDATE counter SET revision = revision + 1")
            (revision,) = run("SELECT revision FROM counter").fetchone()
            for key in deletes:
                run("DELETE FROM entries WHERE key = ?", (key.encode(),))
            for key, data in puts.items():
                run("REPLACE INTO entries VALUES (?, ?, ?)", (key.encode(), data, revision))
        return int(revision)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            LocalFiles().make_folder(self._path.parent)
            connection = sqlite3.connect(
                self._path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            try:
                _prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")  # each commit is synced
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        raise UnsupportedVersion(f"metadata version {version}, this Penstock reads {VERSION}")
    if version == 0:
        with _transaction(connection) as run:
            for statement in _SCHEMA:
                run(statement)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[Callable[..., sqlite3.Cursor]]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection.execute
        connection.execute("COMMIT")
    except BaseException:
        # Also where the disk was full at the commit: what is left open would keep out the next.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _translated(path: Path, call: Callable[..., T], *args: Any) -> T:
    """Penstock's errors for those of SQLite."""
    try:
        return call(*args)
    except sqlite3.OperationalError as error:
        raise MetadataUnavailable(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise Damaged(f"{path}: {error}") from error
    except OSError as error:
        raise MetadataUnavailable(f"{path}: {error.strerror or error}") from error
