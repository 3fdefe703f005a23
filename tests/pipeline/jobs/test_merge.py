"""Sorted files become one sorted file, with little of them in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake.files import files_of_day
from penstock.lake.layout import replacement_key
from penstock.lake.schemas import SPANS
from penstock.lake.target import Target
from penstock.pipeline.jobs import merge
from penstock.pipeline.jobs.merge import Input, Merge, merged
from tests.lake.helpers import DAY, Flush, spans

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table

    from penstock.lake.tables import Lake


@pytest.fixture
def table(lake: Lake) -> Table:
    """Three files of 200 rows each, which lie between one another."""
    table = lake.table("spans")
    flush = Flush(table)
    for number in range(3):
        flush.flush(spans(range(number, 600, 3)))
    return table


def order(table: Table, *unwanted: np.ndarray | None, paths: list[str] | None = None) -> Merge:
    """All files of the table, or those."""
    found = paths or [file.path for file in files_of_day(table.refresh(), DAY)]
    padded = [*unwanted, *([None] * len(found))]
    inputs = tuple(map(Input, found, padded))
    return Merge(Target.of(table), DAY, replacement_key(found), inputs)


def read(path: str) -> pa.Table:
    """The rows of a file."""
    return pq.ParquetFile(path).read()


def all_rows(table: Table) -> pa.Table:
    """Those of the three files, sorted."""
    files = [read(file.path) for file in files_of_day(table, DAY)]
    order_of = [("service_name", "ascending"), ("time", "ascending")]
    return pa.concat_tables(files).sort_by(order_of)


def test_rows_are_those_of_all_files_in_order(table: Table) -> None:
    """In one row group, since they are few."""
    file = merged(order(table))
    assert file is not None
    assert read(file.path).equals(all_rows(table))
    assert pq.ParquetFile(file.path).num_row_groups == 1


def test_row_groups_end_with_so_many_bytes(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows that are; none is lost where one ends."""
    monkeypatch.setattr(merge, "ROW_GROUP_BYTES", 20_000)
    file = merged(order(table))
    assert file is not None
    assert read(file.path).equals(all_rows(table))
    footer = pq.ParquetFile(file.path).metadata
    sizes = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    assert len(sizes) > 5
    assert max(sizes) < 2 * min(sizes[:-1])


def test_row_groups_end_with_so_many_rows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few bytes that are."""
    monkeypatch.setattr(merge, "ROW_GROUP_ROWS", 250)
    file = merged(order(table))
    assert file is not None
    footer = pq.ParquetFile(file.path).metadata
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [250, 250, 100]
    assert read(file.path).equals(all_rows(table))


def test_unwanted_rows_are_left_out(table: Table) -> None:
    """The first, the last and one between, of one of the files."""
    second = files_of_day(table, DAY)[1].path
    left_out = set(read(second)["span_id"].take([0, 77, 199]).to_pylist())
    file = merged(order(table, None, np.array([0, 77, 199])))
    assert file is not None
    kept = read(file.path)["span_id"].to_pylist()
    assert len(kept) == 597
    assert set(kept) == set(all_rows(table)["span_id"].to_pylist()) - left_out


def test_nothing_wanted_is_no_file(table: Table) -> None:
    """A data file has rows."""
    everything = np.arange(200)
    assert merged(order(table, everything, everything, everything)) is None


def test_file_that_is_not_sorted_is_merged_all_the_same(table: Table, tmp_path: Path) -> None:
    """Another engine may have written it."""
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(spans(range(1000, 1100)).take(np.arange(100)[::-1]), foreign)
    sorted_file = files_of_day(table, DAY)[0].path
    file = merged(order(table, paths=[sorted_file, str(foreign)]))
    assert file is not None
    rows = read(file.path)
    assert rows.num_rows == 300
    assert rows.equals(rows.sort_by([("service_name", "ascending"), ("time", "ascending")]))
    assert set(rows["span_id"].to_pylist()) >= {f"{n:016x}" for n in range(1000, 1100)}


def test_column_of_another_type_is_cast(table: Table, tmp_path: Path) -> None:
    """A file may be from before a column became wider."""
    narrow = SPANS.set(SPANS.get_field_index("flags"), pa.field("flags", pa.int32()))
    old = tmp_path / "old.parquet"
    pq.write_table(spans([5]).set_column(8, "flags", pa.array([3], pa.int32())).cast(narrow), old)
    file = merged(order(table, paths=[str(old)]))
    assert file is not None
    assert read(file.path)["flags"].to_pylist() == [3]
    assert read(file.path).schema.field("flags").type == pa.int64()


def test_merging_again_writes_another_file(table: Table) -> None:
    """What an attempt has left, half or whole, is in nobody's way."""
    first, second = merged(order(table)), merged(order(table))
    assert first is not None
    assert second is not None
    assert first.path != second.path
    assert read(first.path).equals(read(second.path))
