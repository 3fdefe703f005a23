"""DuckDB over the three tiers, shut off from every other file and from the network."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from penstock.model.errors import InvalidArgument, QueryTooLarge, QueryTooSlow
from penstock.query.relations import ROLLUPS, Relations
from penstock.query.statements import checked, sentence
from penstock.query.tiers import ALL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from penstock.lake.settings import LakeSettings
    from penstock.query.tiers import TableTiers, Tier

_BATCH_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """What one query may use; None: no limit."""

    rows: int | None = None
    """Of the answer; more is QueryTooLarge."""
    bytes: int | None = None
    seconds: float | None = None
    """After these it is stopped, with QueryTooSlow."""
    memory_bytes: int = 1024**3


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows, and how they were found."""

    rows: pa.Table
    tables: dict[str, TableTiers]
    warnings: list[str]


def ask(
    data_dir: Path,
    lake: LakeSettings,
    sql: str,
    *,
    tiers: Collection[Tier] = ALL,
    limits: QueryLimits | None = None,
) -> Answer:
    """Answers one statement that reads. InvalidArgument says what is wrong with it.

    It sees everything that was acknowledged before it began, each row once. What could not be read
    is named in the warnings.
    """
    limits = limits or QueryLimits()
    with _connection(limits) as connection:
        statement = checked(connection, sql)
        relations = Relations(connection, data_dir, lake, tiers)
        relations.make(statement)
        _shut(connection, relations.paths)
        rows = _run(connection, statement, limits)
    return Answer(rows, relations.tables, list(dict.fromkeys(relations.warnings)))


@contextlib.contextmanager
def _connection(limits: QueryLimits) -> Iterator[DuckDBPyConnection]:
    with tempfile.TemporaryDirectory(prefix="penstock-query-") as spill:
        config: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": f"{limits.memory_bytes}B",
            "temp_directory": spill,
        }
        connection = duckdb.connect(":memory:", config=config)
        try:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET python_enable_replacements = false")
            yield connection
        finally:
            connection.close()


def _shut(connection: DuckDBPyConnection, paths: list[str]) -> None:
    """From now on it reads these files and no others, and writes none."""
    connection.execute("SET allowed_paths = ?", [paths])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _run(connection: DuckDBPyConnection, sql: str, limits: QueryLimits) -> pa.Table:
    timer = threading.Timer(limits.seconds, connection.interrupt) if limits.seconds else None
    if timer is not None:
        timer.start()
    try:
        return _within(connection.sql(sql).to_arrow_reader(_BATCH_ROWS), limits)
    except duckdb.InterruptException:
        raise QueryTooSlow(f"the query took longer than {limits.seconds} s") from None
    except duckdb.OutOfMemoryException as error:
        raise QueryTooLarge(sentence(error)) from None
    except duckdb.Error as error:
        raise InvalidArgument(_explained(sentence(error))) from None
    finally:
        if timer is not None:
            timer.cancel()


def _within(reader: pa.RecordBatchReader, limits: QueryLimits) -> pa.Table:
    batches, rows, size = [], 0, 0
    for batch in reader:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if limits.rows is not None and rows > limits.rows:
            raise QueryTooLarge(f"the answer has more than {limits.rows} rows; add a LIMIT")
        if limits.bytes is not None and size > limits.bytes:
            raise QueryTooLarge(f"the answer has more than {limits.bytes} bytes; add a LIMIT")
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _explained(text: str) -> str:
    """With what to do about a table that is promised and not there yet."""
    missing = any(f"Table with name {table} does not exist" in text for table in ROLLUPS)
    return f"{text} `penstock pipeline rollup` makes it." if missing else text
