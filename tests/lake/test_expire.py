"""Old rows and old snapshots leave the table; doing it again finds nothing."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from penstock.lake.expire import Expired, expire_rows, expire_snapshots
from penstock.lake.files import live_files
from penstock.lake.positions import read_positions
from penstock.model.errors import CommitContended

from .helpers import DAY, NEXT_DAY, Flush, compact, numbers, spans
from .test_commit import intercept

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.lake.tables import Lake


def far_ahead() -> dt.datetime:
    """Everything is older than that."""
    return dt.datetime.now(dt.UTC) + dt.timedelta(days=1)


def test_whole_days_leave_the_table(table: Table) -> None:
    """Positions stay: what left is not read again."""
    flush = Flush(table)
    flush.flush(spans(range(3)), spans(range(3, 5), NEXT_DAY))
    positions = read_positions(table)
    assert expire_rows(table, NEXT_DAY).rows == 3
    assert numbers(table) == [3, 4]
    assert read_positions(table) == positions


def test_a_day_stays_until_it_is_over(table: Table) -> None:
    """The day of the limit itself is not touched."""
    Flush(table).flush(spans(range(3)))
    assert expire_rows(table, DAY) == Expired()
    assert numbers(table) == [0, 1, 2]


def test_expiring_rows_again_finds_nothing(table: Table) -> None:
    """And makes no snapshot."""
    Flush(table).flush(spans(range(3)))
    expired = expire_rows(table, NEXT_DAY)
    location = table.metadata_location
    assert (expired.files, expired.rows) == (1, 3)
    assert expired.bytes > 0
    assert expire_rows(table, NEXT_DAY) == Expired()
    assert table.metadata_location == location


def test_rows_without_a_time_go_by_the_age_of_their_file(table: Table) -> None:
    """Nothing else is known of them."""
    Flush(table).flush(spans(range(2), None))
    [file] = live_files(table)
    today = dt.datetime.now(dt.UTC).date()
    assert expire_rows(table, today) == Expired()
    then = dt.datetime.combine(today - dt.timedelta(days=3), dt.time(), dt.UTC).timestamp()
    os.utime(file.path, (then, then))
    assert expire_rows(table, today).rows == 2


def test_expiry_beside_a_compaction_plans_again(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that it wanted to remove have become others."""
    flush = Flush(table)
    flush.flush(spans([0]))
    flush.flush(spans([1]), spans([2], NEXT_DAY))
    beside = lake.table("spans")

    def compact_first(go_on: Callable[[], Any]) -> Any:
        compact(table)
        return go_on()

    intercept(beside, monkeypatch, compact_first)
    expired = expire_rows(beside, NEXT_DAY)
    assert (expired.files, expired.rows) == (1, 2)
    assert numbers(table) == [2]


def test_snapshots_are_forgotten_but_the_newest(table: Table) -> None:
    """The rows stay as they are."""
    flush = Flush(table)
    for number in range(3):
        flush.flush(spans([number]))
    assert expire_snapshots(table, far_ahead()) == 3
    assert len(table.metadata.snapshots) == 1
    assert expire_snapshots(table, far_ahead()) == 0
    assert numbers(table) == [0, 1, 2]


def test_young_snapshots_stay(table: Table) -> None:
    """Somebody may be reading them."""
    flush = Flush(table)
    flush.flush(spans([0]))
    assert expire_snapshots(table, dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)) == 0
    assert len(table.metadata.snapshots) == 2


def test_flush_and_expiry_forget_the_same_snapshots_without_harm(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finds that the other one was faster, and goes on."""
    with table.transaction() as change:
        change.set_properties({"penstock.snapshots-kept": "2"})
    flush, beside = Flush(table), lake.table("spans")
    flush.flush(spans([0]))
    batch = flush.batch(spans([1]))

    def expire_first(go_on: Callable[[], Any]) -> Any:
        assert expire_snapshots(beside, far_ahead()) == 1
        return go_on()

    intercept(table, monkeypatch, expire_first)
    batch.commit_to(table)
    assert numbers(table) == [0, 1]

    def flush_first(go_on: Callable[[], Any]) -> Any:
        flush.flush(spans([2]))
        return go_on()

    intercept(beside, monkeypatch, flush_first)
    assert expire_snapshots(beside, far_ahead()) == 1
    assert numbers(table) == [0, 1, 2]


def test_expiry_of_a_table_that_never_rests_ends(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error that says: later."""
    flush = Flush(table)
    flush.flush(spans([0]))
    real = table.catalog.commit_table
    numbers_left = iter(range(100))

    def commit_table(*_: Any, **__: Any) -> Any:
        monkeypatch.setattr(table.catalog, "commit_table", real)
        with table.catalog.load_table(table.name()).transaction() as change:
            change.set_properties({"touched": str(next(numbers_left))})
        monkeypatch.setattr(table.catalog, "commit_table", commit_table)
        raise ConnectionError("no answer")

    monkeypatch.setattr(table.catalog, "commit_table", commit_table)
    with pytest.raises(CommitContended):
        expire_snapshots(table, far_ahead())
