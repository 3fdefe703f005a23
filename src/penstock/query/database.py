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
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

import duckdb

from penstock.lake.glance import local_path
from penstock.storage.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

    from penstock.lake.settings import LakeSettings

_KEPT: Final = 8
NO_FILES: Final[frozenset[str]] = frozenset()
_Key: TypeAlias = "tuple[str, int, frozenset[str] | None]"
_lock: Final = threading.Lock()
_databases: Final[dict[_Key, DuckDBPyConnection]] = {}


@contextlib.contextmanager
def connection_to(
    lake: LakeSettings, memory_bytes: int, paths: frozenset[str] | None = None
) -> Iterator[DuckDBPyConnection]:
    """A connection whose tables are gone at the end. All that share `memory_bytes` share it.

    It reaches the files at `paths` alone; None: all of the lake.
    """
    key = (lake.warehouse, memory_bytes, paths)
    connection = _database(key).cursor()
    try:
        yield connection
    except (duckdb.FatalException, duckdb.InternalException):
        forget(lake, memory_bytes, paths)  # it refuses everything from now on
        raise
    finally:
        connection.close()


def forget(lake: LakeSettings, memory_bytes: int, paths: frozenset[str] | None = None) -> None:
    """The next connection is to a new one."""
    with _lock:
        _databases.pop((lake.warehouse, memory_bytes, paths), None)


def _database(key: _Key) -> DuckDBPyConnection:
    with _lock:
        found = _databases.pop(key, None) or _opened(*key)
        _databases[key] = found  # the last one is the one used last
        while len(_databases) > _KEPT:
            _databases.pop(next(iter(_databases)))
    return found


def _opened(warehouse: str, memory_bytes: int, paths: frozenset[str] | None) -> DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": f"{memory_bytes}B",
        "temp_directory": _spill_folder(),
    }
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL python_enable_replacements = false")
    connection.execute("SET GLOBAL parquet_metadata_cache = true")
    if paths is None:
        connection.execute("SET allowed_directories = ?", [[f"{local_path(warehouse)}/"]])
    else:
        connection.execute("SET allowed_paths = ?", [sorted(paths)])
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
