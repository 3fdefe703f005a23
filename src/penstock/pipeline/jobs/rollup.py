"""Spans summed up day by day, and again when spans of that day come later.

For each day of each rollup the driver compares the files that `spans` has now with those that the
day was computed from. Where they are others it has Spark compute the day, and puts the result in
the place of what was there, in one commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException

from penstock.lake.files import files_of_day
from penstock.lake.target import Target
from penstock.model.errors import InvalidArgument, PenstockError
from penstock.pipeline.jobs import edges, red, traces
from penstock.pipeline.jobs.basis import Basis, final_before, name_of
from penstock.pipeline.jobs.days import DayFiles
from penstock.pipeline.jobs.problems import problem_of
from penstock.pipeline.jobs.repeats import find_repeats
from penstock.pipeline.jobs.results import commit_results, write_results
from penstock.pipeline.jobs.scan import Scan, spans
from penstock.pipeline.jobs.schemas import SERVICE_EDGES_1H, SHAPES, TRACES
from penstock.pipeline.jobs.settings import RollupSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import date

    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.files import LiveFile, WrittenFile
    from penstock.lake.tables import Lake
    from penstock.pipeline.jobs.days import Window
    from penstock.pipeline.jobs.repeats import Repeats


@dataclass(frozen=True, slots=True)
class Rollup:
    """How a rollup comes from spans."""

    columns: tuple[str, ...]
    """Of the spans."""
    frame: Callable[[DataFrame, int, int], DataFrame]
    """What Spark computes of spans, for the times from a microsecond to another."""
    finish: Callable[[pa.Table], pa.Table]
    """The last step, in the tasks: the rows as the table has them."""
    reaches: bool = True
    """Whether spans of the days before and after count."""


def _edges(rows: pa.Table) -> pa.Table:
    return rows.select(SERVICE_EDGES_1H.names).cast(SERVICE_EDGES_1H)


def _traces(rows: pa.Table) -> pa.Table:
    return rows.select(TRACES.names).cast(TRACES)


ROLLUPS: Final[Mapping[str, Rollup]] = MappingProxyType(
    {
        "service_red_1m": Rollup(red.COLUMNS, red.red, red.with_quantiles, reaches=False),
        "service_edges_1h": Rollup(edges.COLUMNS, edges.edges, _edges),
        "traces": Rollup(traces.COLUMNS, traces.traces, _traces),
    }
)
"""By their names in SQL."""


@dataclass(frozen=True, slots=True)
class RollupReport:
    """What became of a day of a rollup."""

    table: str
    day: date
    rows: int
    """That the rollup has of it now; 0 where there was a problem."""
    files_read: int
    rows_read: int
    problem: str | None = None
    """Why the day is as it was."""


@dataclass(frozen=True, slots=True)
class RollupPlan:
    """A day of a rollup that is to be computed."""

    table: str
    window: Window
    replaced: tuple[LiveFile, ...]
    """What the rollup has of that day."""
    found: str | None
    """The property that said what it was computed from."""


def rollup(
    spark: SparkSession,
    lake: Lake,
    settings: RollupSettings | None = None,
    *,
    tables: Iterable[str] = tuple(ROLLUPS),
    days: Iterable[date] | None = None,
) -> Iterator[RollupReport]:
    """Computes the days whose spans have changed, and reports each when it is committed.

    Safe beside flush, compaction, expiry and another rollup; may be killed and repeated at any
    time. A day that cannot be computed is reported, and the others go on.
    """
    work = due_work(lake, settings or RollupSettings(), tables=tables, days=days)
    yield from roll_up(spark, work)


@dataclass(frozen=True, slots=True)
class Work:
    """All that is to be computed, of the spans that there were when it was planned."""

    source: Table | None
    rollups: Mapping[str, Table]
    days: tuple[tuple[RollupPlan, ...], ...]
    """For each day that has any, what is due of it."""


def due_work(
    lake: Lake,
    settings: RollupSettings,
    *,
    tables: Iterable[str] = tuple(ROLLUPS),
    days: Iterable[date] | None = None,
) -> Work:
    """What is to be computed now. Makes tables that are missing, and reads manifests.

    InvalidArgument where a name is not that of a rollup.
    """
    tables = tuple(tables)
    if not set(tables) <= set(ROLLUPS):
        raise InvalidArgument(f"rollups are {', '.join(ROLLUPS)}, not {', '.join(tables)}")
    # Before the rollups: what is expired from here on they call final.
    source = lake.existing("spans")
    if source is None:
        return Work(None, {}, ())
    rollups = {name: lake.table(name, SHAPES[name]) for name in tables}
    files = DayFiles.of(source)
    chosen = files.days() if days is None else sorted(set(days) & set(files.days()))
    plans = (
        tuple(
            plan
            for name, table in rollups.items()
            if (plan := plan_rollup(name, table, files, day, settings)) is not None
        )
        for day in chosen
    )
    return Work(source, rollups, tuple(due for due in plans if due))


def roll_up(spark: SparkSession, work: Work) -> Iterator[RollupReport]:
    """Does it, day by day."""
    if work.source is not None:
        for plans in work.days:
            yield from _roll_up_day(spark, work.source, work.rollups, plans)


def plan_rollup(
    name: str, table: Table, files: DayFiles, day: date, settings: RollupSettings
) -> RollupPlan | None:
    """What is to be computed; None if the day is as its spans say. Changes nothing."""
    if day < final_before(table.properties):
        return None
    margin_us = int(settings.trace_max_s * 1e6) if ROLLUPS[name].reaches else 0
    window = files.window(day, margin_us)
    basis = Basis.read(table.properties, day)
    if basis is not None and basis.is_current(window):
        return None
    found = table.properties.get(name_of(day))
    return RollupPlan(name, window, tuple(files_of_day(table, day)), found)


def write_rollup(
    spark: SparkSession, plan: RollupPlan, source: Target, target: Target, repeats: Repeats
) -> list[WrittenFile]:
    """Computes a day from the files of `source`, and writes it; nothing refers to it yet."""
    window, kind = plan.window, ROLLUPS[plan.table]
    begin_us, end_us = window.begin_us - window.margin_us, window.end_us + window.margin_us
    scan = Scan(source, window.files, repeats, begin_us, end_us)
    frame = kind.frame(spans(spark, scan, kind.columns), window.begin_us, window.end_us)
    return write_results(frame, target, kind.finish)


def commit_rollup(table: Table, plan: RollupPlan, written: Sequence[WrittenFile]) -> None:
    """Puts the day in its place. CommitConflict where another rollup did so since the plan."""
    commit_results(
        table,
        plan.window.day,
        written,
        replaced=plan.replaced,
        found=plan.found,
        basis=Basis.of(plan.window),
    )


def _roll_up_day(
    spark: SparkSession, source: Table, rollups: Mapping[str, Table], plans: Sequence[RollupPlan]
) -> Iterator[RollupReport]:
    files = {file.path: file for plan in plans for file in plan.window.files}
    target = Target.of(source)
    try:
        repeats = find_repeats(spark, "spans", target, list(files.values()))
    except (PenstockError, PySparkException) as error:
        yield from (_report(plan, (), problem_of(error)) for plan in plans)
        return
    for plan in plans:
        table = rollups[plan.table]
        try:
            written = write_rollup(spark, plan, target, Target.of(table), repeats)
            commit_rollup(table, plan, written)
        except (PenstockError, PySparkException) as error:
            yield _report(plan, (), problem_of(error))
        else:
            yield _report(plan, written)


def _report(
    plan: RollupPlan, written: Sequence[WrittenFile], problem: str | None = None
) -> RollupReport:
    files = plan.window.files
    return RollupReport(
        plan.table,
        plan.window.day,
        rows=sum(file.rows for file in written),
        files_read=len(files),
        rows_read=sum(file.rows for file in files),
        problem=problem,
    )
