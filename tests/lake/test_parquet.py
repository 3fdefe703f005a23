"""How columns are encoded, and that it pays."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake.layout import replacement_key
from penstock.lake.parquet import ROW_GROUP_ROWS, leaf_paths, writer_options
from penstock.lake.schemas import SPANS, TABLES
from penstock.lake.target import Target
from penstock.lake.writer import write_rows

from .helpers import span

if TYPE_CHECKING:
    from pyiceberg.table import Table

KEY = replacement_key(["x"])


def realistic(count: int, spans_a_trace: int = 8) -> pa.Table:
    """Rows whose ids and times are as random as real ones, in the order of their traces."""
    random = Random(1)
    rows = []
    for number in range(count):
        if number % spans_a_trace == 0:
            trace = f"{random.getrandbits(128):032x}"
        row = span(number, trace_id=trace, span_id=f"{random.getrandbits(64):016x}")
        spread_ns = random.randrange(10**9)
        row["start_time_unix_nano"] += spread_ns
        row["time"] = row["start_time_unix_nano"] // 1000
        row["duration_ns"] = int(random.lognormvariate(14, 1))
        row["end_time_unix_nano"] = row["start_time_unix_nano"] + row["duration_ns"]
        rows.append(row | {"service_name": f"service-{random.randrange(8)}"})
    return pa.Table.from_pylist(rows, schema=SPANS)


def encodings(path: str, column: str) -> set[str]:
    """Those of a column's values."""
    group = pq.read_metadata(path).row_group(0)
    [found] = [
        group.column(i)
        for i in range(group.num_columns)
        if group.column(i).path_in_schema == column
    ]
    return set(found.encodings)


@pytest.mark.parametrize("name", TABLES)
def test_leaf_paths_are_parquet_s(name: str, tmp_path: Path) -> None:
    """Options name columns by them, and Parquet ignores names that it does not know."""
    pq.write_table(TABLES[name].empty_table(), tmp_path / "x.parquet")
    schema = pq.read_metadata(tmp_path / "x.parquet").schema
    assert list(leaf_paths(TABLES[name])) == [schema.column(i).path for i in range(len(schema))]


def test_a_file_is_not_larger_than_plain_zstd(table: Table, tmp_path: Path) -> None:
    """Though it is sorted, has a page index and a bloom filter."""
    rows = realistic(8000)
    [file] = write_rows(rows, Target.of(table), KEY, 0)
    pq.write_table(rows, tmp_path / "plain.parquet", compression="zstd")
    assert file.bytes <= (tmp_path / "plain.parquet").stat().st_size


def test_ids_and_times_have_no_dictionary(table: Table) -> None:
    """Almost every value is another one."""
    [file] = write_rows(realistic(1000), Target.of(table), KEY, 0)
    assert "DELTA_LENGTH_BYTE_ARRAY" in encodings(file.path, "span_id")
    assert "DELTA_BINARY_PACKED" in encodings(file.path, "start_time_unix_nano")
    assert "RLE_DICTIONARY" in encodings(file.path, "service_name")


def test_times_that_repeat_have_a_dictionary() -> None:
    """Data points of metrics are read together, and have the same start for hours."""
    rows = [{"time": 7, "start_time_unix_nano": 1, "time_unix_nano": n} for n in range(100)]
    options = writer_options(pa.Table.from_pylist(rows, schema=TABLES["metrics"]))
    assert {"time", "start_time_unix_nano"} <= set(options["use_dictionary"])
    assert options["column_encoding"]["time_unix_nano"] == "DELTA_BINARY_PACKED"


@pytest.mark.parametrize(
    ("spans_a_trace", "encoding"), [(8, "RLE_DICTIONARY"), (1, "DELTA_LENGTH_BYTE_ARRAY")]
)
def test_trace_ids_have_a_dictionary_where_they_repeat(
    table: Table, spans_a_trace: int, encoding: str
) -> None:
    """Traces of a single span would only make it larger."""
    [file] = write_rows(realistic(1000, spans_a_trace), Target.of(table), KEY, 0)
    assert encoding in encodings(file.path, "trace_id")


def test_a_trace_is_looked_up_by_its_bloom_filter(table: Table) -> None:
    """An id between the smallest and the largest, but not in the file, needs no row group."""
    [file] = write_rows(realistic(2000), Target.of(table), KEY, 0)
    [present] = pq.read_table(file.path, columns=["trace_id"], partitioning=None)["trace_id"][:1]
    probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe($1, 'trace_id', $2)"
    found = [duckdb.execute(probe, [file.path, str(id_)]).fetchall() for id_ in ("7" * 32, present)]
    assert found == [[(True,)], [(False,)]]


def test_rows_without_traces_have_no_filter() -> None:
    """Metrics have no trace ids, and some logs neither."""
    assert writer_options(TABLES["metrics"].empty_table())["bloom_filter_options"] is None
    logs = pa.Table.from_pylist([{"body": "x"}], schema=TABLES["logs"])
    assert writer_options(logs)["bloom_filter_options"] is None


def test_row_groups_are_small_enough_to_be_skipped() -> None:
    """A query for one service reads a part of a file."""
    assert 64 * 1024 <= ROW_GROUP_ROWS <= 128 * 1024


def test_statistics_and_a_page_index_are_there(table: Table) -> None:
    """Readers skip row groups by the one and pages by the other."""
    [file] = write_rows(realistic(1000), Target.of(table), KEY, 0)
    column = pq.read_metadata(file.path).row_group(0).column(0)
    assert column.statistics.has_min_max
    assert column.has_column_index
    assert column.has_offset_index
