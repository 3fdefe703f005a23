"""Spans as Spark gets them: some columns, some times, none twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from penstock.lake.files import live_files
from penstock.lake.target import Target
from penstock.pipeline.jobs.scan import Scan, spans
from tests.lake.helpers import DAY
from tests.pipeline.jobs.helpers import as_table, filled, nanos, span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from penstock.lake.tables import Lake

MORNING_US = nanos(DAY, 8) // 1000


def scan(table: Table, repeats: Mapping[str, np.ndarray], begin: int, end: int) -> Scan:
    """Of all files; from a microsecond after eight to another."""
    files = tuple(live_files(table.refresh()))
    return Scan(Target.of(table), files, repeats, MORNING_US + begin, MORNING_US + end)


def found(spark: SparkSession, wanted: Scan) -> list[tuple[int, str]]:
    """The microseconds and the names of spans."""
    rows = spans(spark, wanted, ("name",)).collect()
    return sorted((row.time_us - MORNING_US, row.name) for row in rows)


def numbered(count: int) -> list[dict[str, object]]:
    """Spans a microsecond apart, of one service."""
    start = nanos(DAY, 8)
    return [span("a", f"{n:x}", at_ns=start + 1000 * n, name=f"{n}") for n in range(count)]


def test_rows_of_the_time_are_read_without_repeats(spark: SparkSession, lake: Lake) -> None:
    """The end is not part of it; numbers of rows are those of the file."""
    table = filled(lake, "spans", numbered(10))
    [path] = [file.path for file in live_files(table)]
    wanted = scan(table, {path: np.array([1, 4, 9])}, 2, 7)
    assert found(spark, wanted) == [(2, "2"), (3, "3"), (5, "5"), (6, "6")]


def test_row_groups_of_other_times_are_passed_over(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """They may be damaged; the numbers of the rows after them are as before."""
    table = filled(lake, "spans", numbered(3))
    path = str(tmp_path / "grouped.parquet")
    pq.write_table(as_table("spans", numbered(30)), path, row_group_size=10)
    second = pq.read_metadata(path).row_group(1).column(0)
    with Path(path).open("r+b") as file_of_groups:
        file_of_groups.seek(4)
        file_of_groups.write(b"\xff" * (second.dictionary_page_offset - 4))
    [file] = live_files(table)
    grouped = type(file)(path, 30, 1, DAY, file.spec_id)
    begin, end = MORNING_US + 12, MORNING_US + 22
    wanted = Scan(Target.of(table), (grouped,), {path: np.array([3, 15, 20])}, begin, end)
    assert [number for number, _ in found(spark, wanted)] == [12, 13, 14, 16, 17, 18, 19, 21]


def test_no_files_are_no_rows(spark: SparkSession, lake: Lake) -> None:
    """The columns are there."""
    frame = spans(spark, scan(lake.table("spans"), {}, 0, 9), ("name", "duration_ns"))
    assert frame.collect() == []
    assert frame.columns == ["time_us", "name", "duration_ns"]
