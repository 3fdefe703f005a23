"""DuckDB, shut off: it reaches the files that it was made for, and no statement can change that.

For our own statements, and for callers that may see everything, that is the lake's folder. For a
caller that may not, it is the files of its question and no others. It writes none but what it
spills, loads nothing and reaches no network. One serves all queries of a process over the same
files, and remembers the footers that it has read; queries have names of their own each, so that
none sees another's tables.
"""

from __future__ import annotations

import atexit
import contextlib
import secrets
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import duckdb

from penstock.lake.metadata import local_path
from penstock.storage.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

_KEPT: Final = 8
NO_FILES: Final[frozenset[str]] = frozenset()
_lock: Final = threading.Lock()
_databases: Final[dict[Engine, DuckDBPyConnection]] = {}


@dataclass(frozen=True, slots=True)
class Engine:
    """What a database is made for; those that are equal are one."""

    warehouse: str
    memory_bytes: int
    paths: frozenset[str] | None = None
    """The files that it reaches; None: all of the lake."""
    spill_bytes: int | None = None
    """The most that it puts aside on disk, of all its queries together; None: without a bound."""


@contextlib.contextmanager
def connection_to(engine: Engine) -> Iterator[DuckDBPyConnection]:
    """A connection whose tables are gone at the end. All that share an engine share its memory."""
    connection = _database(engine).cursor()
    try:
        yield connection
    except (duckdb.FatalException, duckdb.InternalException):
        forget(engine)  # it refuses everything from now on
        raise
    finally:
        connection.close()


def forget(engine: Engine) -> None:
    """The next connection is to a new one."""
    with _lock:
        _databases.pop(engine, None)


def _database(engine: Engine) -> DuckDBPyConnection:
    with _lock:
        found = _databases.pop(engine, None) or _opened(engine)
        _databases[engine] = found  # the last one is the one used last
        while len(_databases) > _KEPT:
            _databases.pop(next(iter(_databases)))
    return found


def _opened(engine: Engine) -> DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": f"{engine.memory_bytes}B",
        "temp_directory": _spill_folder(),
    }
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL python_enable_replacements = false")
    connection.execute("SET GLOBAL parquet_metadata_cache = true")
    if engine.spill_bytes is not None:  # where it is configured it is shown, and not kept to
        connection.execute(f"SET max_temp_directory_size = '{engine.spill_bytes}B'")
    if engine.paths is None:
        folder = f"{local_path(engine.warehouse)}/"
        connection.execute("SET allowed_directories = ?", [[folder]])
    else:
        connection.execute("SET allowed_paths = ?", [sorted(engine.paths)])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _spill_folder() -> str:
    """A name for DuckDB to make a folder of when it has to; nobody else can read what is in it."""
    return str(_scratch().path / secrets.token_hex(8))


@cache
def _scratch() -> Scratch:
    """Of this process, and gone with it."""
    scratch = Scratch("query")
    atexit.register(scratch.remove)
    return scratch
