"""Other engines read the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.lake.schemas import SPANS

from .helpers import DAY, NEXT_DAY, Flush, compact, span, spans

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.lake.tables import Lake


@pytest.fixture
def filled(lake: Lake) -> Table:
    """Two days and rows without a time, some of them compacted."""
    table = lake.table("spans")
    flush = Flush(table)
    for number in range(4):
        flush.flush(spans([number, number + 10]), spans([number + 20], NEXT_DAY))
    flush.flush(spans([30], None))
    compact(table)
    return table


def paths(table: Table, row_filter: str = "_offset >= 0") -> list[str]:
    """The files that a query needs."""
    return [task.file.file_path for task in table.scan(row_filter).plan_files()]


def test_every_engine_counts_the_same_rows(filled: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg, DuckDB and Polars; by the list of files and, Polars, by the metadata."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    assert filled.scan().count() == 13
    assert filled.scan().to_arrow().num_rows == 13
    assert duckdb.read_parquet(paths(filled)).shape[0] == 13
    assert pl.scan_parquet(paths(filled)).select(pl.len()).collect().item() == 13
    assert pl.scan_iceberg(filled).select(pl.len()).collect().item() == 13


def test_every_engine_reads_the_same_values(filled: Table) -> None:
    """Of plain columns, maps and nanoseconds."""
    columns = ("_offset", "trace_id", "start_time_unix_nano", "duration_ns")
    expected = filled.scan(selected_fields=columns).to_arrow().select(columns).sort_by("_offset")
    listed = ", ".join(columns)
    found = duckdb.sql(
        f"SELECT {listed} FROM read_parquet({paths(filled)}, hive_partitioning=false) ORDER BY 1"  # noqa: S608 - our own names
    )
    assert found.fetchall() == [tuple(row.values()) for row in expected.to_pylist()]
    polars = pl.read_parquet(paths(filled), hive_partitioning=False).select(columns).sort("_offset")
    assert polars.rows() == [tuple(row.values()) for row in expected.to_pylist()]


def test_attributes_are_maps(filled: Table) -> None:
    """SQL asks for one by its name."""
    files = paths(filled)
    found = duckdb.sql(f"SELECT sum(attributes['number']::INT) FROM read_parquet({files})")  # noqa: S608 - our own paths
    assert found.fetchall() == [(sum([*range(4), *range(10, 14), *range(20, 24), 30]),)]


def test_a_query_for_a_day_reads_that_day_s_files(filled: Table) -> None:
    """By the partition, not by the folder."""
    files = paths(filled, f"time >= '{NEXT_DAY}T00:00:00+00:00'")
    assert len(files) == 4
    assert all(f"day={NEXT_DAY.day}" in path for path in files)


def test_a_query_for_a_service_skips_files(lake: Lake) -> None:
    """Bounds of the sort columns are in the manifests."""
    table = lake.table("spans")
    flush = Flush(table)
    for service in ("cart", "checkout", "payment"):
        row = span(1, service_name=service)
        flush.flush(pa.Table.from_pylist([row], schema=SPANS))
    assert len(paths(table, "service_name == 'checkout'")) == 1


def test_the_folders_are_columns_for_those_who_read_them(filled: Table) -> None:
    """Years are numbers, also beside rows without a time."""
    pattern = f"{filled.location()}/data/*/*/*/*.parquet"
    found = duckdb.sql(
        f"SELECT year, month, day, typeof(year) FROM read_parquet('{pattern}', "  # noqa: S608 - our own path
        "hive_partitioning=true) GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    assert {(row[0], row[1], row[2]) for row in found} == {
        (2025, 11, DAY.day),
        (2025, 11, NEXT_DAY.day),
        (None, None, None),
    }
    assert {row[3] for row in found} == {"BIGINT"}


def test_files_without_numbers_can_be_added(lake: Lake, table: Table) -> None:
    """`add_files` of pyiceberg works: the table has a name mapping."""
    import pyarrow.parquet as pq

    path = f"{lake.settings.warehouse}/others.parquet"
    pq.write_table(spans(range(4)), path)
    table.add_files([path])
    rows = table.scan().to_arrow()
    assert pc.sum(rows["_offset"]).as_py() == 6
