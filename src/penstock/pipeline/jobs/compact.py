"""Small files of a day become files of a target size, sorted anew, and no row is in them twice.

Rows of far-off days are merged with those that came on the same day, as if that were theirs: so
they stay in few files, and keep their age. The driver plans and commits day by day; tasks read and
write. What a kill leaves are files that nothing refers to, which `expire` deletes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException

from penstock.lake.files import files_of_day, live_files
from penstock.lake.layout import FarOff, replacement_key
from penstock.lake.reader import deleted_count, state_bytes
from penstock.lake.replace import replace
from penstock.lake.schemas import TABLES, signal_of
from penstock.lake.target import Target
from penstock.model.errors import PenstockError
from penstock.pipeline.jobs.merge import Input, Merge, merged
from penstock.pipeline.jobs.parcels import balanced, parcels
from penstock.pipeline.jobs.problems import problem_of
from penstock.pipeline.jobs.repeats import find_repeats
from penstock.pipeline.jobs.settings import CompactSettings
from penstock.pipeline.tasks import run_in_tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from penstock.lake.files import LiveFile, WrittenFile
    from penstock.lake.layout import Day
    from penstock.lake.tables import Lake
    from penstock.pipeline.jobs.repeats import Repeats

MERGED_ROWS: Final = 3_000_000
"""The most rows of a merged file: their sort columns are in memory."""
MERGED_FILES: Final = 256
"""The most files that are merged at once: all of them are open."""
_READERS_SHARE: Final = 0.4
"""Of a task's memory; the rest is the row group that is written, and the order of the rows."""


@dataclass(frozen=True, slots=True)
class DayReport:
    """What a compaction did to a day of a table."""

    table: str
    day: Day
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    """After it."""
    repeats: int
    """Rows that were there twice, and are not any more."""
    problem: str | None = None
    """Why nothing was changed, or not all that should be."""


@dataclass(frozen=True, slots=True)
class DayPlan:
    """What is to be done to a day: some of its files, and what they become."""

    table: str
    day: Day
    files: tuple[LiveFile, ...]
    """All of the day."""
    merges: tuple[Merge, ...]

    @property
    def replaced(self) -> list[LiveFile]:
        """The files that will not be in the table any more."""
        paths = {each.path for merge in self.merges for each in merge.inputs}
        return [file for file in self.files if file.path in paths]


def compact(
    spark: SparkSession,
    lake: Lake,
    settings: CompactSettings | None = None,
    *,
    tables: Iterable[str] = tuple(TABLES),
    days: Iterable[Day] | None = None,
) -> Iterator[DayReport]:
    """Compacts the days that need it, one after another, and reports each when it is committed.

    Safe beside flush, expiry and readers: rows that arrive meanwhile stay, and a day that another
    compaction has changed is left to it. May be killed and repeated at any time. A day that
    cannot be compacted is reported, and the others go on.
    """
    settings = settings or CompactSettings()
    for name, table, day in due_days(lake, settings, tables=tables, days=days):
        yield compact_day(spark, name, table, day, settings)


def due_days(
    lake: Lake,
    settings: CompactSettings,
    *,
    tables: Iterable[str] = tuple(TABLES),
    days: Iterable[Day] | None = None,
) -> Iterator[tuple[str, Table, Day]]:
    """The days with so many small files that they are worth it; reads the tables' manifests.

    InvalidArgument where a name is not that of a table of spans, logs or metrics.
    """
    chosen = None if days is None else set(days)
    for name in tables:
        signal_of(name)
        table = lake.existing(name)
        if table is not None:
            due = _days(table, settings)
            yield from ((name, table, day) for day in due if chosen is None or day in chosen)


def compact_day(
    spark: SparkSession, name: str, table: Table, day: Day, settings: CompactSettings
) -> DayReport:
    """Merges until at most one file is small, or no two fit into a task's memory."""
    before = files_of_day(table.refresh(), day)
    repeats = 0
    problem = None
    try:
        plan = plan_day(spark, name, table, day, settings)
        while plan is not None:
            repeats += commit_day(table, plan, write_day(spark, plan))
            plan = _plan(spark, name, table, day, settings, {})
    except (PenstockError, PySparkException) as error:
        problem = problem_of(error)
    after = files_of_day(table.refresh(), day)
    return DayReport(
        name,
        day,
        files_before=len(before),
        files_after=len(after),
        bytes_before=_bytes(before),
        bytes_after=_bytes(after),
        rows=_live_rows(table, after),
        repeats=repeats,
        problem=problem,
    )


def plan_day(
    spark: SparkSession, name: str, table: Table, day: Day, settings: CompactSettings
) -> DayPlan | None:
    """What is to be done now; None if nothing. Reads the files of the day, and changes nothing."""
    files = files_of_day(table.refresh(), day)
    if not _is_due(files, settings):
        return None
    return _plan(
        spark, name, table, day, settings, find_repeats(spark, name, Target.of(table), files)
    )


def write_day(spark: SparkSession, plan: DayPlan) -> list[WrittenFile]:
    """Writes the new files, in tasks. Nothing refers to them yet; doing it again is harmless."""
    return [file for file in run_in_tasks(spark, merged, plan.merges) if file is not None]


def commit_day(table: Table, plan: DayPlan, written: Sequence[WrittenFile]) -> int:
    """Puts the new files in the place of the old ones; how many rows were there twice.

    FilesReplaced, and nothing is changed, where another compaction was faster, or rows of the old
    files were deleted meanwhile.
    """
    repeats = sum(
        len(each.unwanted)
        for merge in plan.merges
        for each in merge.inputs
        if each.unwanted is not None
    )
    replace(table, plan.replaced, written, same_rows=repeats == 0)
    return repeats


def _plan(
    spark: SparkSession,
    name: str,
    table: Table,
    day: Day,
    settings: CompactSettings,
    repeats: Repeats,
) -> DayPlan | None:
    """One turn: the small files in groups of two or more, and those with rows to be left out.

    Rows that other engines deleted are left out for good.
    """
    files, target = files_of_day(table, day), Target.of(table)
    small = [file for file in files if _is_small(file, settings)]
    groups = [group for group in _groups(spark, target, small, settings) if len(group) > 1]
    grouped = {file.path for group in groups for file in group}
    changed = [file for file in files if file.path in repeats or file.deletes is not None]
    groups += [[file] for file in changed if file.path not in grouped]
    if not groups:
        return None
    key = replacement_key(file.path for group in groups for file in group)
    merges = tuple(Merge(target, day, key, _inputs(group, repeats)) for group in groups)
    return DayPlan(name, day, tuple(files), merges)


def _days(table: Table, settings: CompactSettings) -> list[Day]:
    """Those that are due; far-off ones come after the others, rows without a time last."""
    by_day: dict[Day, list[LiveFile]] = defaultdict(list)
    for file in live_files(table):
        by_day[file.day].append(file)
    due = [day for day, files in by_day.items() if _is_due(files, settings)]
    return sorted(due, key=lambda day: (day is None, isinstance(day, FarOff), str(day)))


def _is_due(files: Iterable[LiveFile], settings: CompactSettings) -> bool:
    return sum(_is_small(file, settings) for file in files) >= settings.min_files


def _is_small(file: LiveFile, settings: CompactSettings) -> bool:
    return 2 * file.bytes < settings.target_bytes


def _groups(
    spark: SparkSession, target: Target, small: Sequence[LiveFile], settings: CompactSettings
) -> list[list[LiveFile]]:
    """The files in as few groups as can be, each of which a task can merge at once."""
    if len(small) < 2:
        return []
    orders = [(target, tuple(file.path for file in parcel)) for parcel in parcels(small)]
    states = {path: size for some in run_in_tasks(spark, _states, orders) for path, size in some}

    def share(file: LiveFile) -> float:
        return min(_share(file, states[file.path], settings), 1.0)

    count = 1
    while True:
        groups = balanced(small, share, count)
        if count >= len(small) or all(sum(map(share, group)) <= 1.0 for group in groups):
            return groups
        count = max(count + 1, int(sum(map(share, small))))


def _share(file: LiveFile, state: int, settings: CompactSettings) -> float:
    """How much of what a task can do at once the file takes."""
    return max(
        file.bytes / settings.target_bytes,
        file.rows / MERGED_ROWS,
        state / (settings.memory_bytes * _READERS_SHARE),
        1 / MERGED_FILES,
    )


def _states(order: tuple[Target, tuple[str, ...]]) -> list[tuple[str, int]]:
    target, paths = order
    return [(path, state_bytes(target, path)) for path in paths]


def _inputs(group: Iterable[LiveFile], repeats: Repeats) -> tuple[Input, ...]:
    ordered = sorted(group, key=lambda file: file.path)
    return tuple(Input(file.path, repeats.get(file.path), file.deletes) for file in ordered)


def _live_rows(table: Table, files: Sequence[LiveFile]) -> int:
    deleted = [file for file in files if file.deletes is not None]
    target = Target.of(table) if deleted else None
    return sum(file.rows for file in files) - sum(
        deleted_count(target, file.path, file.deletes) for file in deleted if target is not None
    )


def _bytes(files: Iterable[LiveFile]) -> int:
    return sum(file.bytes for file in files)
