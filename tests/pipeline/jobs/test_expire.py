"""What is too old leaves every table; doing it again finds nothing."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.lake.files import live_files
from penstock.model.clock import SystemClock
from penstock.model.errors import CommitContended, InvalidSetting
from penstock.model.units import DAY_S
from penstock.pipeline.jobs.basis import PREFIX, final_before
from penstock.pipeline.jobs.days import DayFiles
from penstock.pipeline.jobs.expire import ExpireReport, expire
from penstock.pipeline.jobs.rollup import plan_rollup
from penstock.pipeline.jobs.schemas import SHAPES
from penstock.pipeline.jobs.settings import ExpireSettings, RollupSettings
from tests.lake.helpers import DAY, NEXT_DAY, Flush, Later, spans
from tests.pipeline.jobs.helpers import as_table, filled, log, nanos, span, stored

if TYPE_CHECKING:
    from penstock.lake.tables import Lake

KEEP_NO_DAY_BEFORE_THE_NEXT = ExpireSettings(
    rows_s=5.5 * DAY_S, rollups_s=5.5 * DAY_S, snapshots_s=0.0
)


class SomeDaysLater(SystemClock):
    """Such that rows from before `NEXT_DAY` are too old."""

    def wall_ns(self) -> int:
        """The sixth day from then on, at noon."""
        return nanos(NEXT_DAY + dt.timedelta(days=5), 18)


def run(lake: Lake, settings: ExpireSettings = KEEP_NO_DAY_BEFORE_THE_NEXT) -> list[ExpireReport]:
    """Expires, and finds no problem."""
    reports = list(expire(lake, settings, clock=SomeDaysLater()))
    assert [report.problem for report in reports] == [None] * len(reports)
    return reports


def days(lake: Lake, name: str) -> set[dt.date | None]:
    """Those that a table has rows of."""
    table = lake.existing(name)
    assert table is not None
    return {file.day for file in live_files(table)}


def two_days(lake: Lake) -> None:
    """Rows of spans, logs and a rollup, of which the first day is old."""
    flush = Flush(lake.table("spans"))
    flush.flush(spans(range(3)), spans(range(3, 5), NEXT_DAY))
    filled(lake, "logs", [log("old", 1)])
    rollup = lake.table("service_edges_1h", SHAPES["service_edges_1h"])
    old = {"time": nanos(DAY, 8) // 1000, "caller": "shop", "callee": "cart", "calls": 1}
    Flush(rollup).flush(
        as_table("service_edges_1h", [old, {**old, "time": nanos(NEXT_DAY) // 1000}])
    )


def test_old_days_leave_every_table(lake: Lake) -> None:
    """Data and rollups."""
    two_days(lake)
    found = {report.table: (report.rows, report.files) for report in run(lake)}
    assert found == {"spans": (3, 1), "logs": (1, 1), "service_edges_1h": (1, 1)}
    assert [days(lake, name) for name in found] == [{NEXT_DAY}, set(), {NEXT_DAY}]


def test_second_expiry_finds_nothing(lake: Lake) -> None:
    """No table is touched."""
    two_days(lake)
    run(lake)
    before = {name: lake.table(name, SHAPES.get(name)).metadata_location for name in lake.names()}
    again = run(lake)
    assert again == [ExpireReport(name) for name in ("spans", "logs", "service_edges_1h")]
    for name, location in before.items():
        assert lake.table(name, SHAPES.get(name)).metadata_location == location


def test_rows_stay_where_no_age_is_set(lake: Lake) -> None:
    """Only snapshots and orphans go; rollups may have an age of their own."""
    two_days(lake)
    assert [report.rows for report in run(lake, ExpireSettings())] == [0, 0, 0]
    only_rollups = ExpireSettings(rollups_s=5.5 * DAY_S)
    assert [report.rows for report in run(lake, only_rollups)] == [0, 0, 1]
    only_data = ExpireSettings(rows_s=5.5 * DAY_S)
    assert [report.rows for report in run(lake, only_data)] == [3, 1, 0]


def test_named_tables_only(lake: Lake) -> None:
    """Those that do not exist are passed over."""
    two_days(lake)
    reports = list(
        expire(
            lake,
            KEEP_NO_DAY_BEFORE_THE_NEXT,
            tables=["logs", "metrics"],
            clock=SomeDaysLater(),
        )
    )
    assert [report.table for report in reports] == ["logs"]
    assert days(lake, "spans") == {DAY, NEXT_DAY}


def test_files_are_deleted_after_their_grace(lake: Lake) -> None:
    """Once no snapshot has them."""
    two_days(lake)
    table = lake.table("spans")
    before = stored(table)
    settings = ExpireSettings(rows_s=0.0, snapshots_s=0.0)
    list(expire(lake, settings, tables=["spans"]))
    assert stored(table) == before
    [report] = expire(lake, settings, tables=["spans"], clock=Later(hours=2))
    assert report.orphans >= len(before)
    assert report.orphan_bytes > 0
    assert stored(table) == set()


def test_dry_run_says_what_it_would_do_and_does_nothing(lake: Lake) -> None:
    """Its report is that of the run that follows, as far as rows and orphans are there now."""
    two_days(lake)
    orphan = Path(lake.table("spans").location(), "data", f"r{'0' * 24}-00000.parquet")
    orphan.write_bytes(b"12345")
    clock, settings = Later(hours=2), ExpireSettings(rows_s=0.0, snapshots_s=0.0)
    before = lake.table("spans").metadata_location
    tried = list(expire(lake, settings, tables=["spans"], dry_run=True, clock=clock))
    assert tried == [ExpireReport("spans", 5, 2, 1, 1, 5)]
    assert (lake.table("spans").metadata_location, orphan.exists()) == (before, True)
    [done] = expire(lake, settings, tables=["spans"], clock=clock)
    assert (done.rows, done.files, orphan.exists()) == (5, 2, False)


def test_rows_without_a_time_are_rehearsed_by_the_age_of_their_file(lake: Lake) -> None:
    """As they are expired."""
    Flush(lake.table("spans")).flush(spans([1, 2], None))
    settings = ExpireSettings(rows_s=0.0)
    for clock, rows in ((SystemClock(), 0), (Later(hours=48), 2)):
        [tried] = expire(lake, settings, dry_run=True, clock=clock)
        assert tried.rows == rows
    [done] = expire(lake, settings, clock=Later(hours=48))
    assert done.rows == 2


def test_rollups_of_expired_spans_are_final(lake: Lake) -> None:
    """A late span of an expired day does not replace what was computed of all."""
    two_days(lake)
    rollup = lake.table("service_edges_1h", SHAPES["service_edges_1h"])
    with rollup.transaction() as transaction:
        transaction.set_properties({f"{PREFIX}{DAY}": "{}", f"{PREFIX}{NEXT_DAY}": "{}"})
    run(lake, ExpireSettings(rows_s=5.5 * DAY_S))
    rollup.refresh()
    assert final_before(rollup.properties) == NEXT_DAY
    assert [name for name in rollup.properties if name.startswith(PREFIX)] == [
        f"{PREFIX}{NEXT_DAY}"
    ]
    source = filled(lake, "spans", [span("late", "1", at_ns=nanos(DAY, 8))])
    files = DayFiles.of(source)
    assert plan_rollup("service_edges_1h", rollup, files, DAY, RollupSettings()) is None
    assert plan_rollup("service_edges_1h", rollup, files, NEXT_DAY, RollupSettings()) is not None


def test_table_that_fails_keeps_no_other_from_expiring(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named in the report."""
    two_days(lake)

    def busy(*_: object) -> int:
        raise CommitContended("others were faster")

    monkeypatch.setattr("penstock.pipeline.jobs.expire.expire_snapshots", busy)
    reports = list(expire(lake, KEEP_NO_DAY_BEFORE_THE_NEXT, clock=SomeDaysLater()))
    assert [report.problem for report in reports] == ["others were faster"] * 3


@pytest.mark.parametrize("name", ["rows_s", "rollups_s", "snapshots_s", "orphan_grace_s"])
def test_negative_ages_are_refused(name: str) -> None:
    """They would let everything go."""
    with pytest.raises(InvalidSetting, match=name):
        ExpireSettings(**{name: -1.0})
