"""DuckDB, one for all queries of a process over a lake: it remembers the footers that it has read.

It reads the lake's folder and no other file, writes none but what it spills, loads nothing and
reaches no network; no statement can change that. Queries have names of their own each, so that none
sees another's tables.
"""

from __future__ import annotations

import atexit
import contextlib
import secrets
import threading
from functools import cache
from typing import TYPE_CHECKING, Final

import duckdb

from penstock.lake.glance import local_path
from penstock.storage.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

    from penstock.lake.settings import LakeSettings

_KEPT: Final = 4
_lock: Final = threading.Lock()
_databases: Final[dict[tuple[str, int], DuckDBPyConnection]] = {}


@contextlib.contextmanager
def connection_to(lake: LakeSettings, memory_bytes: int) -> Iterator[DuckDBPyConnection]:
    """A connection whose tables are gone at the end. All that share `memory_bytes` share it."""
    connection = _database(lake.warehouse, memory_bytes).cursor()
    try:
        yield connection
    except (duckdb.FatalException, duckdb.InternalException):
        forget(lake, memory_bytes)  # it refuses everything from now on
        raise
    finally:
        connection.close()


def forget(lake: LakeSettings, memory_bytes: int) -> None:
    """The next connection is to a new one."""
    with _lock:
        _databases.pop((lake.warehouse, memory_bytes), None)


def _database(warehouse: str, memory_bytes: int) -> DuckDBPyConnection:
    with _lock:
        found = _databases.pop((warehouse, memory_bytes), None)
        found = found or _opened(warehouse, memory_bytes)
        _databases[warehouse, memory_bytes] = found  # the last one is the one used last
        while len(_databases) > _KEPT:
            _databases.pop(next(iter(_databases)))
    return found


def _opened(warehouse: str, memory_bytes: int) -> DuckDBPyConnection:
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
    connection.execute("SET allowed_directories = ?", [[f"{local_path(warehouse)}/"]])
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
