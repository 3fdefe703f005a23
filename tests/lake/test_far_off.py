"""Rows of days far from their arrival share a file, and are found, merged and expired as others."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.table.update import RemovePartitionSpecsUpdate

from penstock.lake.commit import commit
from penstock.lake.expire import Expired, expire_rows
from penstock.lake.far_off import Arrival
from penstock.lake.files import far_off_files, far_off_spec, files_of_day, live_files
from penstock.lake.layout import (
    FarOff,
    Side,
    batch_key,
    data_path,
    far_off_of,
    key_of,
    replacement_key,
)
from penstock.lake.positions import read_positions
from penstock.lake.replace import replace
from penstock.lake.schemas import SPANS
from penstock.lake.target import Target
from penstock.lake.writer import DataFileWriter, write_rows
from penstock.model.errors import InvalidSetting
from penstock.model.positions import Reached, of_sources

from .helpers import DAY, TRACES, Flush, numbers, read_files, span, spans

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.lake.tables import Lake

YEAR = dt.timedelta(days=365)
AT_DAY = Arrival(DAY, DAY, window_days=10, most_days=4)


def around(days: range, namespace: str = "default", first: int = 0) -> pa.Table:
    """A span for each of some days, counted from that of their arrival."""
    rows = [
        span(number, DAY + dt.timedelta(days=away), namespace=namespace)
        for number, away in enumerate(days, first)
    ]
    return pa.Table.from_pylist(rows, schema=SPANS)


def flushed(table: Table, rows: pa.Table, arrival: Arrival = AT_DAY) -> None:
    """A batch of rows that came then."""
    flush = Flush(table)
    start = of_sources(read_positions(table), {flush.source})
    before = start.get(TRACES, Reached(0, 0))
    end = {**start, TRACES: Reached(before.segment_seq + 1, before.offset + 10)}
    key = batch_key(start, end, flush.epoch)
    files = write_rows(rows, Target.of(table), key, 0, arrival)
    commit(table, files, start=start, end=end, epoch=flush.epoch)


def kept(rows: pa.Table, arrival: Arrival = AT_DAY) -> list[int]:
    """The days that get files, from that of arrival."""
    days = (arrival.day_of(number) for number in arrival.parted(rows).to_pylist())
    return sorted((day - DAY).days for day in days if isinstance(day, dt.date))


# --- which days --------------------------------------------------------------------------------


def test_days_within_the_window_have_files() -> None:
    """Up to its edge, on both sides."""
    arrival = Arrival(DAY, DAY, window_days=10, most_days=1000)
    assert kept(around(range(-20, 21)), arrival) == [*range(-10, 11)]


def test_the_nearest_days_have_files_and_the_usual_ones_beside_them() -> None:
    """However many there are within the window."""
    assert kept(around(range(-9, 10))) == [-3, -2, -1, 0, 1, 2, 3]


def test_days_are_counted_for_each_namespace() -> None:
    """One that names many takes none of another's."""
    wild = around(range(-9, -1), "wild")
    calm = around(range(-9, -5), "calm")
    assert kept(pa.concat_tables([wild, calm])) == [-9, -8, -7, -6, -5, -4, -3, -2]
    encoded = pa.concat_tables([wild, calm])
    place = encoded.schema.get_field_index("namespace")
    names = encoded["namespace"].combine_chunks().dictionary_encode()
    assert kept(encoded.set_column(place, "namespace", names)) == [-9, -8, -7, -6, -5, -4, -3, -2]


def test_days_on_which_rows_came_are_no_other_days() -> None:
    """A batch that waited for long, or is replayed, has as many files as days."""
    arrival = Arrival(DAY - dt.timedelta(days=300), DAY, window_days=10, most_days=0)
    assert len(kept(around(range(-300, 1)), arrival)) == 301


def test_a_row_without_a_time_stays_without_a_day() -> None:
    """It is neither far nor near."""
    rows = pa.concat_tables([around(range(-20, -19)), spans([7], None)])
    parts = [AT_DAY.day_of(number) for number in AT_DAY.parted(rows).to_pylist()]
    assert parts == [FarOff(DAY, Side.PAST), None]


def test_far_rows_are_counted_by_namespace() -> None:
    """Only those that have no file of their day."""
    rows = pa.concat_tables([around(range(-20, 1), "wild"), around(range(2), "calm")])
    assert AT_DAY.counted(rows) == (("wild", 15),)
    assert AT_DAY.counted(around(range(2), "calm")) == ()


def test_an_arrival_that_cannot_be_is_refused() -> None:
    """Its end before its begin."""
    with pytest.raises(InvalidSetting):
        Arrival(DAY, DAY - YEAR, 1, 1)


# --- their files -------------------------------------------------------------------------------


def test_a_name_says_when_far_rows_came_and_where_their_times_are() -> None:
    """And still what the file was written for."""
    key = replacement_key(["/x/a"])
    path = data_path("/lake/spans", FarOff(DAY, Side.FUTURE), key, 0, "0123456789ab")
    assert path.endswith("-0123456789ab-future-20251115.parquet")
    assert path.count("__HIVE_DEFAULT_PARTITION__") == 3
    assert (far_off_of(path), key_of(path)) == (FarOff(DAY, Side.FUTURE), key)
    assert far_off_of(path.replace("-future-20251115", "")) is None
    assert far_off_of(path.replace("20251115", "20259999")) is None


def test_thousands_of_days_are_a_few_files(table: Table) -> None:
    """One for those before, one for those after; no row is lost, or changed."""
    rows = around(range(-1000, 1000))
    flushed(table, rows)
    assert len(list(live_files(table))) == 2 + 3 + 4
    assert sorted(file.day for file in far_off_files(table)) == [  # type: ignore[type-var]
        FarOff(DAY, Side.FUTURE),
        FarOff(DAY, Side.PAST),
    ]
    found = table.scan(selected_fields=("_offset", "time", "date")).to_arrow().sort_by("_offset")
    for name in found.column_names:
        assert found[name].to_pylist() == rows[name].to_pylist()


def test_every_engine_finds_far_rows_by_their_time(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves their files out for the days of arrival."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    flushed(table, around(range(-1000, 1000)))
    then, now = DAY - 2 * YEAR, DAY + dt.timedelta(days=1)
    wanted = f"time >= '{then}T00:00:00+00:00' AND time < '{then}T23:59:59+00:00'"
    [row] = table.scan(wanted).to_arrow().to_pylist()
    assert row["_offset"] == 1000 - 730
    [file] = [task.file.file_path for task in table.scan(wanted).plan_files()]
    sql = (
        f"SELECT _offset FROM read_parquet('{file}', hive_partitioning=false) WHERE date = '{then}'"  # noqa: S608 - our own path
    )
    assert duckdb.sql(sql).fetchall() == [(1000 - 730,)]
    day = pl.col("date") == then
    assert pl.scan_iceberg(table).filter(day).collect()["_offset"].to_list() == [1000 - 730]
    recent = f"time >= '{DAY}T00:00:00+00:00' AND time < '{now}T00:00:00+00:00'"
    [file] = [task.file.file_path for task in table.scan(recent).plan_files()]
    assert far_off_of(file) is None


def test_far_rows_are_merged_with_those_that_came_on_the_same_day(table: Table) -> None:
    """In place of the old files; those of another day stay."""
    later = Arrival(DAY + YEAR, DAY + YEAR, window_days=10, most_days=4)
    for first in (0, 50):
        flushed(table, around(range(-100, -50), first=first))
    flushed(table, around(range(-100, -50), first=100), later)
    day = FarOff(DAY, Side.PAST)
    old, target = files_of_day(table, day), Target.of(table)
    key = replacement_key(file.path for file in old)
    rows = read_files([file.path for file in old])
    with DataFileWriter(target, day, key, 0) as writer:
        writer.write(rows.sort_by([(name, "ascending") for name in target.sorted_by]))
        replace(table, old, [writer.finish()])
    assert [file.rows for file in files_of_day(table, day)] == [100]
    assert numbers(table) == [*range(150)]


# --- how long they stay ------------------------------------------------------------------------


@pytest.mark.parametrize("days", [range(-5000, -4990), range(4990, 5000)])
def test_far_rows_have_the_age_of_their_arrival(table: Table, days: range) -> None:
    """They leave neither at once, nor in the year that they name."""
    flushed(table, around(days))
    assert expire_rows(table, DAY) == Expired()
    assert expire_rows(table, DAY + dt.timedelta(days=1)).rows == 10
    assert numbers(table) == []


# --- tables that lack what they need -----------------------------------------------------------


def test_a_table_without_the_spec_gets_it_when_it_is_opened(lake: Lake) -> None:
    """Another engine may have tidied it away; the partitions by day stay the default."""
    table, default = lake.table("spans"), lake.table("spans").spec()
    number = far_off_spec(table)
    assert number is not None
    with table.transaction() as transaction:
        transaction._apply((RemovePartitionSpecsUpdate(spec_ids=[number]),))
    assert far_off_spec(table) is None
    again = lake.table("spans")
    assert far_off_spec(again) is not None
    assert again.spec() == default
    flushed(again, around(range(-1000, 1)))
    assert numbers(again) == [*range(1001)]


def test_manifests_are_merged_within_their_spec(table: Table) -> None:
    """A table of many commits has few, and all rows; also where a batch has far-off ones alone."""
    with table.transaction() as transaction:
        transaction.set_properties({"penstock.manifests-merged-at": "3"})
    for number in range(8):
        flushed(table, around(range(-60, -50 if number % 2 else 1), first=number * 100))
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    found = snapshot.manifests(table.io)
    assert {each.partition_spec_id for each in found} == {0, 1}
    assert len(found) < 8
    assert len(numbers(table)) == 4 * 10 + 4 * 61
