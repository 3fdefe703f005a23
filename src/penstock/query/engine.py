"""DuckDB over the three tiers, shut off from every other file and from the network."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from penstock.lake.dialects import DUCKDB
from penstock.lake.glance import glance
from penstock.lake.schemas import TABLES
from penstock.lake.views import view_queries
from penstock.model.errors import InvalidArgument, QueryTooLarge, QueryTooSlow
from penstock.query.repeats import without_repeats
from penstock.query.statements import checked, sentence, tables_in
from penstock.query.tiers import ALL, TableTiers, Tier, look

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from penstock.lake.glance import ColdFile
    from penstock.lake.settings import LakeSettings

_BATCH_ROWS: Final = 100_000
ROLLUPS: Final = ("service_red_1m", "service_edges_1h", "traces")
"""Tables that the lake alone has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """What one query may use; None: no limit."""

    rows: int | None = None
    """Of the answer; more is QueryTooLarge."""
    bytes: int | None = None
    seconds: float | None = None
    """After these it is stopped, with QueryTooSlow."""
    memory_bytes: int = 1024**3


@dataclass(slots=True)
class Answer:
    """The rows, and how they were found."""

    rows: pa.Table
    tables: dict[str, TableTiers]
    warnings: list[str] = field(default_factory=list)


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
        answer = Answer(pa.table({}), {})
        named = tables_in(connection, statement)
        paths: list[str] = []
        for table in TABLES:
            if table in named:
                found = look(data_dir, lake, table, tiers, answer.warnings.append)
                answer.tables[table] = found
                paths += _make_table(connection, table, found)
        for table in named.intersection(ROLLUPS):
            cold = glance(lake, table)
            paths += _make_cold(connection, table, cold.files)
        _make_views(connection, set(answer.tables), named)
        _shut(connection, paths)
        answer.rows = _run(connection, statement, limits)
    answer.warnings = list(dict.fromkeys(answer.warnings))
    return answer


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


def _make_table(connection: DuckDBPyConnection, table: str, found: TableTiers) -> list[str]:
    """A view over the tiers; returns the files that it reads."""
    columns = ", ".join(f'"{name}"' for name in TABLES[table].names)
    connection.register(f"fresh_{table}", without_repeats(table, found))
    parts = [f"SELECT {columns} FROM fresh_{table}"]  # noqa: S608 - all names here are our own
    paths = [file.path for file in found.cold.files]
    if paths:
        parts.insert(0, f"SELECT {columns} FROM {_parquet(paths)}")  # noqa: S608 - so here
    connection.execute(f"CREATE VIEW {table} AS {' UNION ALL '.join(parts)}")
    return paths


def _make_cold(
    connection: DuckDBPyConnection, table: str, files: Collection[ColdFile]
) -> list[str]:
    paths = [file.path for file in files]
    if not paths:
        raise InvalidArgument(f"{table} is empty: `penstock pipeline rollup` fills it")
    connection.execute(f"CREATE VIEW {table} AS FROM {_parquet(paths)}")
    return paths


def _make_views(connection: DuckDBPyConnection, tables: set[str], named: set[str]) -> None:
    for view, query in view_queries(DUCKDB, sorted(tables)).items():
        if view in named:
            connection.execute(f"CREATE VIEW {view} AS {query}")


def _parquet(paths: list[str]) -> str:
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"


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
        raise InvalidArgument(sentence(error)) from None
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
