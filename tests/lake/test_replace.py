"""Files for other files, beside everything else that happens to the table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from penstock.lake.files import files_of_day, live_files
from penstock.lake.layout import replacement_key
from penstock.lake.positions import read_epochs, read_positions
from penstock.lake.replace import replace
from penstock.lake.target import Target
from penstock.lake.writer import write_rows
from penstock.model.errors import CommitConflict, FilesReplaced, InvalidArgument, NotHonoured

from .helpers import DAY, NEXT_DAY, Flush, compact, numbers, spans
from .test_commit import intercept

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.lake.tables import Lake


def test_a_replacement_changes_files_and_nothing_else(table: Table) -> None:
    """Rows, positions and the epoch stay."""
    flush = Flush(table)
    for number in range(3):
        flush.flush(spans([number]), spans([number + 10], NEXT_DAY))
    positions = read_positions(table)
    compact(table)
    assert numbers(table) == [0, 1, 2, 10, 11, 12]
    assert (read_positions(table), read_epochs(table)[flush.source]) == (positions, flush.epoch)
    assert len(files_of_day(table, DAY)) == 1
    assert len(files_of_day(table, NEXT_DAY)) == 3


def test_rows_without_a_time_are_compacted_too(table: Table) -> None:
    """Their partition is null."""
    flush = Flush(table)
    for number in range(3):
        flush.flush(spans([number], None))
    compact(table, None)
    assert len(files_of_day(table, None)) == 1
    assert numbers(table) == [0, 1, 2]


def test_files_that_are_gone_are_not_replaced(lake: Lake, table: Table) -> None:
    """Of two compactions of a day one wins, and its rows are there once."""
    flush = Flush(table)
    for number in range(3):
        flush.flush(spans([number]))
    old = files_of_day(table, DAY)
    key = replacement_key(file.path for file in old[:2])
    merged = write_rows(spans(range(2)), Target.of(table), key, 0)
    compact(lake.table("spans"))
    with pytest.raises(FilesReplaced, match="Missing required files"):
        replace(table, old[:2], merged)
    assert numbers(table) == [0, 1, 2]


def test_an_append_that_comes_between_is_kept(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files to be replaced are still there, so it is tried again."""
    flush = Flush(table)
    flush.flush(spans([0]))
    flush.flush(spans([1]))
    beside = lake.table("spans")

    def append_first(go_on: Callable[[], Any]) -> Any:
        flush.flush(spans([2]))
        return go_on()

    intercept(beside, monkeypatch, append_first)
    compact(beside)
    assert numbers(table) == [0, 1, 2]
    assert sorted(file.rows for file in live_files(table)) == [1, 2]
    assert read_positions(table)[next(iter(read_positions(table)))].segment_seq == 3


def test_a_replacement_cannot_be_repeated(table: Table) -> None:
    """What it would remove is not there any more."""
    Flush(table).flush(spans(range(2)))
    old = files_of_day(table, DAY)
    key = replacement_key(file.path for file in old)
    merged = write_rows(spans(range(2)), Target.of(table), key, 0)
    replace(table, old, merged)
    with pytest.raises(FilesReplaced):
        replace(table, old, merged)
    assert numbers(table) == [0, 1]


def test_files_for_another_purpose_are_refused(table: Table) -> None:
    """A path that is in the table cannot be put in again."""
    flush = Flush(table)
    batch = flush.batch(spans(range(2)))
    batch.commit_to(table)
    old = files_of_day(table, DAY)
    with pytest.raises(InvalidArgument, match="replace other files"):
        replace(table, old, batch.files)
    with pytest.raises(InvalidArgument, match="nothing to remove"):
        replace(table, [], [])


def test_files_of_another_partitioning_are_refused(table: Table) -> None:
    """An operator has changed it between writing and committing."""
    Flush(table).flush(spans(range(2)))
    old = files_of_day(table, DAY)
    key = replacement_key(file.path for file in old)
    merged = write_rows(spans(range(2)), Target.of(table), key, 0)
    with table.update_spec() as spec:
        spec.add_identity("namespace")
    with pytest.raises(CommitConflict, match="partition spec"):
        replace(table, old, merged)
    with pytest.raises(NotHonoured, match="not partitioned by day alone"):
        Target.of(table)


def test_flush_and_compaction_at_the_same_time_lose_nothing(lake: Lake, table: Table) -> None:
    """Whoever loses a race tries again on what the other one left."""
    flush, beside, done = Flush(table), lake.table("spans"), threading.Event()

    def compact_on_and_on() -> None:
        while not done.is_set():
            if len(files_of_day(beside.refresh(), DAY)) > 1:
                compact(beside)

    thread = threading.Thread(target=compact_on_and_on)
    thread.start()
    try:
        for number in range(12):
            flush.flush(spans([number]))
    finally:
        done.set()
        thread.join()
    assert numbers(table) == list(range(12))
    assert read_positions(table)[next(iter(read_positions(table)))].segment_seq == 12
