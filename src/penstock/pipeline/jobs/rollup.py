"""Spans summed up day by day, and again when spans of that day come later.

For each day of each rollup the driver compares the files that `spans` has now with those that the
day was computed from. Where they are others it has Spark compute the day, and puts the result in
the place of what was there, in one commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.errors import PySparkException

from penstock.lake.files import files_of_day
from penstock.lake.target import Target
from penstock.model.errors import PenstockError
from penstock.pipeline.jobs import edges, red, traces
from penstock.pipeline.jobs.basis import Basis, final_before, name_of
from penstock.pipeline.jobs.days import DayFiles
from penstock.pipeline.jobs.problems import problem_of
from penstock.pipeline.jobs.repeats import find_repeats
from penstock.pipeline.jobs.results import commit_results, write_results
from penstock.pipeline.jobs.scan import Scan, spans
from penstock.pipeline.jobs.schemas import SHAPES
from penstock.pipeline.jobs.settings import RollupSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import date

    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.files import LiveFile, WrittenFile
    from penstock.lake.tables import Lake
    from penstock.pipeline.jobs.days import Window
    from penstock.pipeline.jobs.repeats import Repeats

ROLLUPS: Final = tuple(SHAPES)


@dataclass(frozen=True, slots=True)
class RollupReport:
    """What became of a day of a rollup."""

    table: str
    day: date
    rows: int
    """Of the rollup, on that day."""
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

    @property
    def is_current(self) -> bool:
        """Whether nothing has to be done."""
        name = name_of(self.window.day)
        before = Basis.read({name: self.found or ""}, self.window.day)
        return before is not None and before.is_current(self.window)


def rollup(
    spark: SparkSession,
    lake: Lake,
    settings: RollupSettings | None = None,
    *,
    tables: Iterable[str] = ROLLUPS,
    days: Iterable[date] | None = None,
) -> Iterator[RollupReport]:
    """Computes the days whose spans have changed, and reports each when it is committed.

    Safe beside flush, compaction, expiry and another rollup; may be killed and repeated at any
    time. A day that cannot be computed is reported, and the others go on.
    """
    settings = settings or RollupSettings()
    source = lake.existing("spans")
    if source is None:
        return
    rollups = {name: lake.table(name, SHAPES[name]) for name in tables}
    files = DayFiles.of(source)
    chosen = files.days() if days is None else sorted(set(days) & set(files.days()))
    for day in chosen:
        plans = [plan_rollup(name, table, files, day, settings) for name, table in rollups.items()]
        due = [plan for plan in plans if plan is not None]
        yield from _roll_up_day(spark, source, rollups, due)


def plan_rollup(
    name: str, table: Table, files: DayFiles, day: date, settings: RollupSettings
) -> RollupPlan | None:
    """What is to be computed; None if the day is as its spans say. Changes nothing."""
    if day < final_before(table.properties):
        return None
    margin_us = 0 if name == "service_red_1m" else int(settings.trace_max_s * 1e6)
    window = files.window(day, margin_us)
    found = table.properties.get(name_of(day))
    plan = RollupPlan(name, window, tuple(files_of_day(table, day)), found)
    return None if plan.is_current else plan


def compute(spark: SparkSession, plan: RollupPlan, target: Target, repeats: Repeats) -> DataFrame:
    """The rows of the day, of the table of spans `target`; not before an action asks for them."""
    window = plan.window
    begin_us, end_us = window.begin_us - window.margin_us, window.end_us + window.margin_us
    scan = Scan(target, window.files, repeats, begin_us, end_us)
    if plan.table == "service_red_1m":
        return red.red(spans(spark, scan, red.COLUMNS))
    kind = edges if plan.table == "service_edges_1h" else traces
    function = edges.edges if kind is edges else traces.traces
    return function(spans(spark, scan, kind.COLUMNS), window.begin_us, window.end_us)


def _roll_up_day(
    spark: SparkSession, source: Table, rollups: dict[str, Table], plans: list[RollupPlan]
) -> Iterator[RollupReport]:
    raise NotImplementedError
