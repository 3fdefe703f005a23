"""The files that a table has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from penstock.lake.expire import Expired, expire_rows
from penstock.lake.files import data_file, files_before, files_of_day, live_files

from .helpers import DAY, NEXT_DAY, Flush, numbers, spans

if TYPE_CHECKING:
    from pyiceberg.table import Table


def test_live_files_are_those_that_were_written(table: Table) -> None:
    """Path, rows, bytes and day."""
    batch = Flush(table).batch(spans(range(3)), spans(range(3, 5), NEXT_DAY), spans([5], None))
    batch.commit_to(table)

    def described(file: object) -> tuple[object, ...]:
        return tuple(getattr(file, name) for name in ("path", "rows", "bytes", "day", "spec_id"))

    assert {described(f) for f in live_files(table)} == {described(f) for f in batch.files}


@pytest.mark.parametrize("day", [DAY, NEXT_DAY, None])
def test_files_are_found_by_their_day(table: Table, day: None) -> None:
    """Those without a time as well; in the order of their paths."""
    flush = Flush(table)
    for number in range(3):
        flush.flush(spans([number]), spans([number], NEXT_DAY), spans([number], None))
    found = files_of_day(table, day)
    assert [file.day for file in found] == [day] * 3
    assert [file.path for file in found] == sorted(file.path for file in found)


def test_files_before_a_day_are_found_with_those_of_no_day(table: Table) -> None:
    """What expiry looks at; manifests of later days are not read."""
    Flush(table).flush(spans([0]), spans([1], NEXT_DAY), spans([2], None))
    assert {file.day for file in files_before(table, NEXT_DAY)} == {DAY, None}
    assert {file.day for file in files_before(table, DAY)} == {None}


def test_an_empty_table_has_no_files(table: Table) -> None:
    """It has no snapshot yet."""
    assert list(live_files(table)) == []
    assert files_of_day(table, DAY) == []


def test_files_of_another_partitioning_are_left_to_whoever_made_it(table: Table) -> None:
    """They have no day of their own, so neither compaction nor expiry takes them."""
    Flush(table).flush(spans([0]))
    with table.update_spec() as spec:
        spec.add_identity("namespace")
    path = f"{table.location()}/others.parquet"
    pq.write_table(spans([1]), path)
    table.add_files([path])
    assert [file.rows for file in live_files(table)] == [1]
    assert expire_rows(table, NEXT_DAY) == Expired(1, 1, expired_bytes(table))
    assert numbers(table) == [1]


def expired_bytes(table: Table) -> int:
    """The size of the file that the newest snapshot has removed."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary["removed-files-size"] or 0)


def test_a_file_of_the_table_has_no_statistics_to_give(table: Table) -> None:
    """It is only ever taken out; the manifest keeps what it knows."""
    Flush(table).flush(spans([0, 1]))
    [file] = live_files(table)
    assert data_file(file).record_count == 2
    assert data_file(file).lower_bounds is None
