"""Which rows of a day are there twice, and which of them stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from penstock.lake.files import live_files
from penstock.lake.target import Target
from penstock.pipeline.jobs.repeats import find_repeats
from tests.lake.helpers import DAY, NEXT_DAY
from tests.pipeline.jobs.helpers import filled, log, nanos, point, span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from penstock.lake.tables import Lake
    from tests.pipeline.jobs.helpers import Row

MORNING_NS = nanos(DAY, 8)


def offsets_of_repeats(spark: SparkSession, name: str, table: Table) -> list[int]:
    """The offsets of the rows that are repeats, sorted."""
    files = list(live_files(table.refresh()))
    found = find_repeats(spark, name, Target.of(table), files)
    offsets = []
    for path, rows in found.items():
        with table.io.new_input(path).open() as file:
            column = pq.read_table(file, columns=["_offset"])["_offset"]
        offsets += column.take(rows).to_pylist()
    return sorted(offsets)


def span_of(trace: str, number: str, offset: int, **columns: object) -> Row:
    """A span of the morning that came in that request."""
    row = span(trace, number, at_ns=MORNING_NS, _offset=offset)
    return {**row, **columns}


def test_of_a_span_sent_again_the_first_stays(spark: SparkSession, lake: Lake) -> None:
    """In whichever file, and whatever else it says; the same id in another trace is another."""
    table = filled(
        lake,
        "spans",
        [span_of("a", "1", 7), span_of("a", "2", 1), span_of("b", "1", 2)],
        [span_of("a", "1", 3, name="GET /other"), span_of("a", "1", 9)],
        [span_of("a", "1", 5, namespace="other")],
    )
    assert offsets_of_repeats(spark, "spans", table) == [7, 9]


def test_partition_decides_before_the_offset(spark: SparkSession, lake: Lake) -> None:
    """And the topic before the partition."""
    table = filled(
        lake,
        "spans",
        [span_of("a", "1", 1, _topic_partition=1), span_of("b", "2", 2, _topic="/default/zz")],
        [span_of("a", "1", 5), span_of("b", "2", 6)],
    )
    assert offsets_of_repeats(spark, "spans", table) == [1, 2]


def test_span_without_ids_is_the_same_if_all_of_it_is(spark: SparkSession, lake: Lake) -> None:
    """Otherwise all spans without ids would be one."""
    nameless = {"trace_id": None, "span_id": None}
    table = filled(
        lake,
        "spans",
        [span_of("a", "1", 1, **nameless), span_of("a", "1", 2, **nameless, name="other")],
        [span_of("a", "1", 3, **nameless), span_of("a", "1", 4)],
    )
    assert offsets_of_repeats(spark, "spans", table) == [3]


def test_same_span_on_two_days_is_two(spark: SparkSession, lake: Lake) -> None:
    """Each day is looked at for itself."""
    later = span("a", "1", at_ns=nanos(NEXT_DAY), _offset=2)
    table = filled(lake, "spans", [span_of("a", "1", 1)], [later])
    assert offsets_of_repeats(spark, "spans", table) == []


def test_equal_log_records_are_repeats_if_requests_differ(spark: SparkSession, lake: Lake) -> None:
    """One request may tell of two equal events; a second one with the same is the first again."""
    table = filled(
        lake,
        "logs",
        [log("sold", 1), log("sold", 1), log("bought", 1)],
        [log("sold", 2), log("sold", 2), log("sold", 2, severity_number=9)],
    )
    assert offsets_of_repeats(spark, "logs", table) == [2, 2]


def test_equal_data_points_are_repeats(spark: SparkSession, lake: Lake) -> None:
    """Nested values are compared as well."""
    other = {"count": 3, "bucket_counts": [2, 1], "explicit_bounds": [0.5]}
    table = filled(
        lake,
        "metrics",
        [point(1, 1), point(2, 1)],
        [point(1, 2), point(2, 2, histogram=other), point(2, 3, attributes=[("a", "1")])],
    )
    assert offsets_of_repeats(spark, "metrics", table) == [2]


def test_rows_are_counted_over_pieces_of_a_file(spark: SparkSession, lake: Lake) -> None:
    """A file is read piece by piece; numbers of rows are those in the file."""
    many: Iterable[Row] = (span_of("a", f"{n}", n) for n in range(300))
    table = filled(lake, "spans", many, [span_of("a", "295", 1000), span_of("a", "3", 2000)])
    assert offsets_of_repeats(spark, "spans", table) == [1000, 2000]
    table = filled(lake, "logs", [log(f"{n}", n) for n in range(300, 600)], [log("590", 1)])
    assert offsets_of_repeats(spark, "logs", table) == [590]


def test_no_files_have_no_repeats(spark: SparkSession, lake: Lake) -> None:
    """Nothing is asked of Spark."""
    assert find_repeats(spark, "spans", Target.of(lake.table("spans")), []) == {}
