"""Rows become sorted Parquet files of their days, described well enough to be committed."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import parquet_file_to_data_file

from penstock.lake import durable
from penstock.lake.files import WrittenFile, data_file
from penstock.lake.layout import key_of, replacement_key
from penstock.lake.schemas import SHARING, SPANS
from penstock.lake.target import Target
from penstock.lake.writer import DataFileWriter, split_by_day, write_rows
from penstock.model.errors import InvalidArgument
from penstock.storage.files import LocalFiles

from .helpers import DAY, NEXT_DAY, span, spans

if TYPE_CHECKING:
    from pyiceberg.table import Table

KEY = replacement_key(["x"])
_DAYS = (DAY, NEXT_DAY)


@pytest.fixture
def target(table: Table) -> Target:
    """As a task gets it."""
    return pickle.loads(pickle.dumps(Target.of(table)))  # noqa: S301 - our own bytes


def mixed() -> pa.Table:
    """Rows of two days and of none, in no order."""
    rows = [span(number, [DAY, NEXT_DAY, None][number % 3]) for number in range(30)]
    return pa.Table.from_pylist(rows[::-1], schema=SPANS)


def read(file: WrittenFile) -> pa.Table:
    """The rows of a file."""
    return pq.read_table(file.path, partitioning=None)


def test_late_rows_go_to_their_day(target: Target) -> None:
    """One file a day, whatever the order of the rows; those without a time have their own."""
    files = write_rows(mixed(), target, KEY, 0)
    assert [(file.day, file.rows) for file in files] == [(DAY, 10), (NEXT_DAY, 10), (None, 10)]
    for file in files:
        assert set(read(file)["date"].to_pylist()) == {file.day}


def test_a_day_ends_at_midnight_utc(target: Target) -> None:
    """To the microsecond, also before 1970."""
    midnight = dt.datetime(2025, 11, 16, tzinfo=dt.UTC)
    times = [
        midnight,
        midnight - dt.timedelta(microseconds=1),
        dt.datetime(1969, 12, 31, 23, tzinfo=dt.UTC),
    ]
    rows = pa.Table.from_pylist(
        [{"time": time, "service_name": "a"} for time in times], schema=SPANS
    )
    days = [day for day, _ in split_by_day(rows, target)]
    assert days == [dt.date(1969, 12, 31), DAY, NEXT_DAY]


def test_rows_are_sorted_by_service_and_time(target: Target) -> None:
    """Within each file; a row without a service comes last."""
    rows = pa.concat_tables([mixed(), pa.Table.from_pylist([span(0, service_name=None)], SPANS)])
    for file in write_rows(rows, target, KEY, 0):
        found = [(r["service_name"] or "~", r["time"] or 0) for r in read(file).to_pylist()]
        assert found == sorted(found)
        columns = pq.read_metadata(file.path).row_group(0).sorting_columns
        assert [column.column_index for column in columns] == [3, 0]


def test_sorted_rows_are_not_copied(target: Target) -> None:
    """Those who sort before they write do not pay twice."""
    [(_, rows)] = split_by_day(spans(range(20)), target)
    [(_, same)] = split_by_day(rows, target)
    buffers = [table["span_id"].chunk(0).buffers()[2].address for table in (rows, same)]
    assert buffers[0] == buffers[1]


def test_every_value_survives(target: Target) -> None:
    """Nested ones too; rows only change their order."""
    rows = spans(range(50))
    [file] = write_rows(rows, target, KEY, 0)
    assert read(file).sort_by("_offset").cast(SPANS).equals(rows)


def test_no_rows_make_no_file(target: Target) -> None:
    """Not even an empty one."""
    assert write_rows(SPANS.empty_table(), target, KEY, 0) == []
    assert not Path(target.location, "data").exists()


def test_a_file_carries_the_numbers_of_its_columns(table: Table, target: Target) -> None:
    """So that Iceberg's readers know a column after it was renamed."""
    [file] = write_rows(spans(range(3)), target, KEY, 0)
    for field in pq.read_schema(file.path):
        number = int(field.metadata[b"PARQUET:field_id"])
        assert number == table.schema().find_field(field.name).field_id


def test_the_description_is_what_the_file_says(table: Table, target: Target) -> None:
    """A task's description equals what pyiceberg finds when it opens the file."""
    [file] = write_rows(spans(range(100)), target, KEY, 0)
    made = data_file(pickle.loads(pickle.dumps(file)))  # noqa: S301 - our own bytes
    found = parquet_file_to_data_file(table.io, table.metadata, file.path)
    assert made.record_count == found.record_count == 100
    assert made.file_size_in_bytes == found.file_size_in_bytes == Path(file.path).stat().st_size
    assert made.partition == found.partition
    assert made.lower_bounds == found.lower_bounds
    assert made.upper_bounds == found.upper_bounds
    assert made.split_offsets == found.split_offsets


def test_bounds_are_kept_of_the_columns_that_queries_prune_by(table: Table, target: Target) -> None:
    """And of no others: every commit reads manifests."""
    [file] = write_rows(spans(range(10)), target, KEY, 0)
    names = {table.schema().find_column_name(number) for number in file.statistics["lower_bounds"]}
    assert {"time", "service_name", "trace_id", "_offset"} <= names
    assert "span_id" not in names
    assert len(file.statistics["column_sizes"]) == len(file.statistics["value_counts"])


def test_every_attempt_at_a_part_has_a_file_of_its_own(target: Target) -> None:
    """A task that runs again, perhaps beside the first, finds nothing in its way."""
    with DataFileWriter(target, DAY, KEY, 0) as half:
        half.write(spans(range(3)))
        [first] = write_rows(spans(range(10)), target, KEY, 0)
        [again] = write_rows(spans(range(9)), target, KEY, 0)
    assert first.path != again.path
    assert key_of(first.path) == key_of(again.path) == KEY
    assert (read(first).num_rows, read(again).num_rows) == (10, 9)


def test_a_failed_write_leaves_nothing(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk does not leave half a file under its name."""

    class Full(LocalFiles):
        def link(self, source: Path, target: Path) -> None:
            raise OSError(28, "No space left on device", str(source), None, str(target))

    monkeypatch.setattr(durable, "FILES", Full())
    with pytest.raises(OSError, match="No space"):
        write_rows(spans(range(10)), target, KEY, 0)
    assert [path for path in Path(target.location, "data").rglob("*") if path.is_file()] == []


def test_a_large_file_is_written_piece_by_piece(target: Target) -> None:
    """As compaction does: one file, several tables, sorted by the caller."""
    with DataFileWriter(target, DAY, KEY, 0) as writer:
        writer.write(spans([0, 3, 6]))
        writer.write(spans([1, 4, 7]))
        file = writer.finish()
    assert file.rows == 6
    assert read(file)["_offset"].to_pylist() == [0, 3, 6, 1, 4, 7]


def test_a_file_that_is_not_finished_leaves_nothing(target: Target) -> None:
    """Nor does one without rows have an end."""
    with DataFileWriter(target, DAY, KEY, 0) as writer:
        writer.write(spans(range(5)))
    with DataFileWriter(target, DAY, KEY, 1) as writer, pytest.raises(InvalidArgument):
        writer.finish()
    assert [path for path in Path(target.location).rglob("*.parquet*") if path.is_file()] == []


def test_a_column_that_the_table_does_not_have_is_refused(target: Target) -> None:
    """Rather than left out."""
    rows = spans(range(3)).append_column("http_route", pa.array(["/"] * 3))
    with pytest.raises(InvalidArgument, match="http_route"):
        write_rows(rows, target, KEY, 0)


def test_narrower_numbers_become_the_table_s(target: Target) -> None:
    """A column that the table has widened takes what an older Penstock writes."""
    rows = spans(range(3))
    place = SPANS.get_field_index("_offset")
    narrow = rows.set_column(place, "_offset", rows["_offset"].cast(pa.int32()))
    [file] = write_rows(narrow, target, KEY, 0)
    assert read(file).schema.field("_offset").type == pa.int64()


def test_a_file_has_no_strings_of_another_day(target: Target) -> None:
    """Shared strings are those of all the rows that are written together."""
    rows = [span(number, day, attributes={"day": str(day)}) for number, day in enumerate(_DAYS)]
    shared = pa.Table.from_pylist(rows, SPANS).cast(SHARING["spans"])
    for file in write_rows(shared, target, KEY, 0):
        assert read(file)["attributes"].to_pylist() == [[("day", str(file.day))]]
        others = {str(day) for day in _DAYS} - {str(file.day)}
        assert not any(day.encode() in Path(file.path).read_bytes() for day in others)
