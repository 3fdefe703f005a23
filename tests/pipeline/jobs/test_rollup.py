"""Rollups say what a slow count of the same spans says, and go on saying it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.lake.expire import expire_rows
from penstock.lake.files import live_files
from penstock.lake.target import Target
from penstock.model.errors import CommitConflict, InvalidArgument, InvalidSetting
from penstock.pipeline.jobs.basis import FINAL_BEFORE, name_of
from penstock.pipeline.jobs.compact import compact
from penstock.pipeline.jobs.days import DayFiles
from penstock.pipeline.jobs.histogram import merge, quantile
from penstock.pipeline.jobs.repeats import find_repeats
from penstock.pipeline.jobs.rollup import (
    ROLLUPS,
    RollupPlan,
    commit_rollup,
    due_work,
    plan_rollup,
    rollup,
    write_rollup,
)
from penstock.pipeline.jobs.schemas import SHAPES
from penstock.pipeline.jobs.settings import CompactSettings, RollupSettings
from tests.lake.helpers import DAY, NEXT_DAY, Flush
from tests.pipeline.jobs import oracle
from tests.pipeline.jobs.helpers import as_table, filled, nanos, span

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from penstock.lake.tables import Lake
    from tests.pipeline.jobs.helpers import Row

BOUND = 0.022


def rows_of(lake: Lake, name: str) -> list[Row]:
    """All rows of a rollup."""
    found: list[Row] = lake.table(name, SHAPES[name]).scan().to_arrow().to_pylist()
    return found


def by(rows: list[Row], *names: str) -> dict[Any, Row]:
    """The rows by some of their columns, which no two of them share."""
    found = {tuple(row.pop(name) for name in names): row for row in rows}
    assert len(found) == len(rows)
    return found


def shuffled(rows: list[Row], files: int) -> list[list[Row]]:
    """The rows in files, as they might arrive; a tenth of them twice."""
    chance = random.Random(7)
    arriving = [*rows, *chance.sample(rows, len(rows) // 10)]
    chance.shuffle(arriving)
    numbered = [{**row, "_offset": offset} for offset, row in enumerate(arriving)]
    return [numbered[number::files] for number in range(files)]


@pytest.fixture(scope="module")
def spans() -> list[Row]:
    """What the rollups are computed of."""
    return oracle.busy_days(seed=3, count=60)


def test_rollups_are_what_the_slow_count_says(
    spark: SparkSession, lake: Lake, spans: list[Row]
) -> None:
    """In all columns, over midnight, with spans in many files and some of them twice."""
    filled(lake, "spans", *shuffled(spans, 4))
    reports = list(rollup(spark, lake))
    assert {(each.table, each.day) for each in reports} == {
        (name, day) for name in ROLLUPS for day in (DAY, NEXT_DAY)
    }
    assert [each.problem for each in reports] == [None] * 6
    check_red(by(rows_of(lake, "service_red_1m"), "namespace", "service_name", "time"), spans)
    edges = by(rows_of(lake, "service_edges_1h"), "time", "namespace", "caller", "callee")
    assert {key: (row["calls"], row["errors"]) for key, row in edges.items()} == oracle.edges(spans)
    assert by(rows_of(lake, "traces"), "namespace", "trace_id") == oracle.traces(spans)


def check_red(found: dict[Any, Row], spans: list[Row]) -> None:
    """Counts are exact, quantiles within the bound, and the histogram counts every request."""
    wanted = oracle.red(spans)
    assert found.keys() == wanted.keys()
    for key, row in found.items():
        assert sum(count for _, count in row.pop("duration_histogram")) == row["requests"]
        for name in [name for name in row if "_p" in name]:
            assert row.pop(name) == pytest.approx(wanted[key].pop(name), rel=BOUND)
        assert row == wanted[key]


def test_histograms_of_minutes_merge_to_that_of_all(spark: SparkSession, lake: Lake) -> None:
    """The quantiles of the sum are those of all durations, within the same bound."""
    chance = random.Random(1)
    durations = [int(10 ** chance.uniform(0, 10)) for _ in range(400)]
    at = [nanos(DAY, 8, 0), nanos(DAY, 8, 1)]
    rows = [
        span("a", f"{n:x}", at_ns=at[n % 3 == 0], duration_ns=duration)
        for n, duration in enumerate(durations)
    ]
    filled(lake, "spans", rows)
    list(rollup(spark, lake, tables=["service_red_1m"]))
    minutes = [dict(row["duration_histogram"]) for row in rows_of(lake, "service_red_1m")]
    assert len(minutes) == 2
    total = merge(minutes)
    for q in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
        wanted = oracle.exact(sorted(durations), q)
        assert quantile(total, q) == pytest.approx(wanted, rel=BOUND)


def test_durations_that_are_none_or_too_long_break_nothing(spark: SparkSession, lake: Lake) -> None:
    """Missing ones are in no histogram, negative ones are nothing, and no sum overflows."""
    at_ns = nanos(DAY, 8)
    longest = 2**63 - 1
    columns = [{"duration_ns": longest}] * 2 + [{"duration_ns": -5}, {"duration_ns": 0}]
    rows = [
        span("a", f"{n:x}", at_ns=at_ns, end_time_unix_nano=None, **each)
        for n, each in enumerate(columns)
    ]
    rows.append(span("b", "9", at_ns=at_ns, service_name="mail") | {"duration_ns": None})
    filled(lake, "spans", rows)
    assert [each.problem for each in rollup(spark, lake)] == [None] * 3
    found = by(rows_of(lake, "service_red_1m"), "service_name")
    shop, mail = found["shop",], found["mail",]
    assert (shop["requests"], shop["duration_sum_ns"]) == (4, longest)
    assert dict(shop["duration_histogram"])[-2] == 2
    assert (shop["duration_min_ns"], shop["duration_p50_ns"]) == (-5, 0)
    assert (mail["requests"], mail["duration_p50_ns"], mail["duration_histogram"]) == (1, None, [])


# --- later spans -------------------------------------------------------------------------------


SOME = ("service_red_1m", "traces")
"""One rollup that reads a day alone, and one that looks at the days beside."""


def due(spark: SparkSession, lake: Lake) -> set[tuple[str, int]]:
    """Rolls up some; which tables and days (of the month) that was."""
    return {(report.table, report.day.day) for report in rollup(spark, lake, tables=SOME)}


def test_only_days_with_other_spans_are_computed_again(spark: SparkSession, lake: Lake) -> None:
    """Nothing at all where nothing is new."""
    table = filled(
        lake,
        "spans",
        [span("a", "1", at_ns=nanos(DAY, 8))],
        [span("b", "1", at_ns=nanos(NEXT_DAY, 8))],
    )
    everything = {(name, day) for name in SOME for day in (15, 16)}
    assert due(spark, lake) == everything
    assert due(spark, lake) == set()
    Flush(table).flush(as_table("spans", [span("c", "1", at_ns=nanos(NEXT_DAY, 9))]))
    assert due(spark, lake) == {(name, 16) for name in SOME}


def test_late_span_corrects_the_day_it_belongs_to(spark: SparkSession, lake: Lake) -> None:
    """The trace becomes complete, the call is counted, and so is the request."""
    at_ns = nanos(DAY, 8)
    child = span("a", "2", "1", at_ns=at_ns, service_name="cart", status_code="STATUS_CODE_ERROR")
    table = filled(lake, "spans", [child])
    list(rollup(spark, lake))
    [before] = rows_of(lake, "traces")
    assert (before["complete"], rows_of(lake, "service_edges_1h")) == (False, [])
    root = span("a", "1", at_ns=at_ns - 1000, duration_ns=5_000_000_000)
    Flush(table).flush(as_table("spans", [root]))
    list(rollup(spark, lake))
    [trace], [edge] = rows_of(lake, "traces"), rows_of(lake, "service_edges_1h")
    assert (trace["complete"], trace["root_service"], trace["span_count"]) == (True, "shop", 2)
    assert (trace["duration_ns"], trace["error_count"]) == (5_000_000_000, 1)
    assert (edge["caller"], edge["callee"], edge["calls"], edge["errors"]) == ("shop", "cart", 1, 1)
    assert sum(row["requests"] for row in rows_of(lake, "service_red_1m")) == 2


def test_late_span_beyond_midnight_changes_the_day_before(spark: SparkSession, lake: Lake) -> None:
    """A trace is on the day of its first span, whenever its spans arrive."""
    late = nanos(DAY, 23, 59)
    table = filled(lake, "spans", [span("a", "1", at_ns=late)])
    due(spark, lake)
    child = span("a", "2", "1", at_ns=nanos(NEXT_DAY, 0, 1), service_name="cart")
    Flush(table).flush(as_table("spans", [child]))
    assert due(spark, lake) == {("service_red_1m", 16), ("traces", 16), ("traces", 15)}
    list(rollup(spark, lake, tables=["service_edges_1h"]))
    [trace] = rows_of(lake, "traces")
    [edge] = rows_of(lake, "service_edges_1h")
    assert (trace["time"].date(), trace["span_count"]) == (DAY, 2)
    assert (edge["time"].date(), edge["caller"], edge["callee"]) == (NEXT_DAY, "shop", "cart")


def test_first_span_that_comes_last_moves_the_trace(spark: SparkSession, lake: Lake) -> None:
    """To the day before, and away from the day that it was on."""
    table = filled(lake, "spans", [span("a", "2", "1", at_ns=nanos(NEXT_DAY, 0, 1))])
    list(rollup(spark, lake, tables=["traces"]))
    Flush(table).flush(as_table("spans", [span("a", "1", at_ns=nanos(DAY, 23, 59))]))
    list(rollup(spark, lake, tables=["traces"]))
    [trace] = rows_of(lake, "traces")
    assert (trace["time"].date(), trace["span_count"], trace["complete"]) == (DAY, 2, True)


def test_compacted_day_gives_the_same_rollups(
    spark: SparkSession, lake: Lake, spans: list[Row]
) -> None:
    """Other files, so it is computed again; the same spans, so nothing changes."""
    filled(lake, "spans", *shuffled(spans, 3))
    due(spark, lake)
    before = {name: sorted(rows_of(lake, name), key=repr) for name in SOME}
    list(compact(spark, lake, CompactSettings(min_files=2), days=[DAY]))
    assert due(spark, lake) == {("service_red_1m", 15), ("traces", 15), ("traces", 16)}
    assert {name: sorted(rows_of(lake, name), key=repr) for name in SOME} == before


# --- beside others -----------------------------------------------------------------------------


def planned(lake: Lake, name: str = "traces") -> tuple[Table, RollupPlan]:
    """A rollup's table, and what is to be done to its day."""
    table = lake.table(name, SHAPES[name])
    source = lake.table("spans")
    plan = plan_rollup(name, table, DayFiles.of(source), DAY, RollupSettings())
    assert plan is not None
    return table, plan


def written(spark: SparkSession, lake: Lake, plan: RollupPlan) -> Any:
    """The files of the plan."""
    source, target = lake.table("spans"), lake.table(plan.table, SHAPES[plan.table])
    repeats = find_repeats(spark, "spans", Target.of(source), plan.window.files)
    return write_rollup(spark, plan, Target.of(source), Target.of(target), repeats)


def test_rollup_that_knows_less_does_not_win(spark: SparkSession, lake: Lake) -> None:
    """It was planned before spans came that another rollup has counted since."""
    spans = filled(lake, "spans", [span("a", "1", at_ns=nanos(DAY, 8))])
    table, plan = planned(lake)
    files = written(spark, lake, plan)
    Flush(spans).flush(as_table("spans", [span("b", "1", at_ns=nanos(DAY, 9))]))
    list(rollup(spark, lake, tables=["traces"]))
    with pytest.raises(CommitConflict, match="another rollup"):
        commit_rollup(table, plan, files)
    assert {row["trace_id"] for row in rows_of(lake, "traces")} == {"a", "b"}


def test_spans_flushed_meanwhile_are_counted_next_time(spark: SparkSession, lake: Lake) -> None:
    """What a rollup says it was computed from is what it has read."""
    spans = filled(lake, "spans", [span("a", "1", at_ns=nanos(DAY, 8))])
    table, plan = planned(lake)
    files = written(spark, lake, plan)
    Flush(spans).flush(as_table("spans", [span("b", "1", at_ns=nanos(DAY, 9))]))
    commit_rollup(table, plan, files)
    assert [row["trace_id"] for row in rows_of(lake, "traces")] == ["a"]
    list(rollup(spark, lake, tables=["traces"]))
    assert {row["trace_id"] for row in rows_of(lake, "traces")} == {"a", "b"}


def test_killed_before_its_commit_it_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    """The next one does the work with files of its own."""
    filled(lake, "spans", [span("a", "1", at_ns=nanos(DAY, 8))])
    _, plan = planned(lake)
    left = written(spark, lake, plan)
    list(rollup(spark, lake, tables=["traces"]))
    assert [row["trace_id"] for row in rows_of(lake, "traces")] == ["a"]
    there = {file.path for file in live_files(lake.table("traces", SHAPES["traces"]))}
    assert not there & {file.path for file in left}


def test_damaged_file_keeps_only_its_own_days_from_being_computed(
    spark: SparkSession, lake: Lake
) -> None:
    """They are named, and other days go on."""
    table = filled(
        lake,
        "spans",
        [span("a", "1", at_ns=nanos(DAY, 8))],
        [span("b", "1", at_ns=nanos(NEXT_DAY, 8))],
    )
    damaged = next(file for file in live_files(table) if file.day == DAY)
    with table.io.new_output(damaged.path).create(overwrite=True) as file:
        file.write(b"PAR1" + bytes(100))
    problems = {each.day: each.problem for each in rollup(spark, lake, tables=["traces"])}
    assert problems.keys() == {DAY, NEXT_DAY}
    assert "arquet" in (problems[DAY] or "")
    assert problems[NEXT_DAY] is None
    assert [row["trace_id"] for row in rows_of(lake, "traces")] == ["b"]


# --- what is left alone ------------------------------------------------------------------------


def test_final_days_are_left_alone(spark: SparkSession, lake: Lake) -> None:
    """Their spans are expired, and a late one alone would replace the sum of all."""
    filled(lake, "spans", [span("a", "1", at_ns=nanos(DAY, 8))])
    table = lake.table("traces", SHAPES["traces"])
    with table.transaction() as transaction:
        transaction.set_properties({FINAL_BEFORE: NEXT_DAY.isoformat()})
    assert list(rollup(spark, lake, tables=["traces"])) == []


def test_day_stays_when_the_day_before_is_expired(spark: SparkSession, lake: Lake) -> None:
    """Computed again it would lose what it knew of that day."""
    late, early = nanos(DAY, 23, 59), nanos(NEXT_DAY, 0, 1)
    table = filled(lake, "spans", [span("a", "1", at_ns=late)], [span("a", "2", "1", at_ns=early)])
    list(rollup(spark, lake, tables=["traces"]))
    assert expire_rows(table, NEXT_DAY).rows == 1
    assert list(rollup(spark, lake, tables=["traces"])) == []
    [trace] = rows_of(lake, "traces")
    assert trace["span_count"] == 2


def test_names_that_are_no_rollups_are_refused(lake: Lake) -> None:
    """Spans are what rollups come from."""
    with pytest.raises(InvalidArgument, match="spans"):
        due_work(lake, RollupSettings(), tables=["spans"])


def test_lake_without_spans_has_no_rollups(spark: SparkSession, lake: Lake) -> None:
    """Nor does it get tables for them."""
    assert list(rollup(spark, lake)) == []
    assert lake.names() == []


def test_day_without_requests_is_not_computed_twice(spark: SparkSession, lake: Lake) -> None:
    """That there are no rows is a result, too."""
    filled(lake, "spans", [span("a", "1", at_ns=nanos(DAY, 8), kind="SPAN_KIND_INTERNAL")])
    [report] = rollup(spark, lake, tables=["service_red_1m"])
    assert (report.rows, report.rows_read, report.problem) == (0, 1, None)
    assert list(rollup(spark, lake, tables=["service_red_1m"])) == []
    assert name_of(DAY) in lake.table("service_red_1m", SHAPES["service_red_1m"]).properties


@pytest.mark.parametrize("wrong", [-1.0, 86_401.0])
def test_margin_is_at_most_a_day(wrong: float) -> None:
    """Only the days beside are looked at."""
    with pytest.raises(InvalidSetting, match="trace_max_s"):
        RollupSettings(trace_max_s=wrong)
