"""One batch: descriptors of segments in, one commit for each table out.

The positions in the lake decide what is new, whatever Spark believes: what a table has is passed
over, so a batch may be run again at any time. Segments are acknowledged after the commits.
"""

from __future__ import annotations

import gc
import heapq
import logging
import time
from collections import Counter
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext

from penstock.lake.commit import commit
from penstock.lake.far_off import Arrival
from penstock.lake.layout import batch_key
from penstock.lake.positions import read_positions
from penstock.lake.schemas import TABLES, table_of
from penstock.lake.tables import Lake
from penstock.lake.target import Target
from penstock.lake.window import Window
from penstock.model.positions import Reached, of_sources
from penstock.model.units import DAY_S
from penstock.pipeline.descriptors import segments_of
from penstock.pipeline.flush.ending import Ending
from penstock.pipeline.flush.progress import BatchReport, ProgressFile, TableReport
from penstock.pipeline.flush.recent import remember_recent
from penstock.pipeline.flush.repeat_window import FOLDER, RepeatWindow, forget_other_tables
from penstock.pipeline.flush.rewrite import Rewrite, rewritten, unwanted_rows
from penstock.pipeline.flush.task import Work, write_group
from penstock.pipeline.tasks import run_in_tasks
from penstock.tiers.cut import rest_of, seals_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import Positions, SourcePartition
    from penstock.pipeline.feeds import Feed
    from penstock.pipeline.flush.settings import FlushSettings
    from penstock.pipeline.flush.task import Written
    from penstock.tiers.segments import Segment, Segments

_LOG = logging.getLogger(__name__)
GROUP_BYTES: Final = 32 * 1024 * 1024
"""Segments that a task reads one after another."""
_CORES: Final = 2
"""A batch makes at least so many tasks, if it has as many segments."""
_AGES_S: Final = 10_000 * 366 * DAY_S
"""No two times are further apart."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a batch does to one table."""

    table: str
    start: Positions
    end: Positions
    work: Work

    @property
    def is_new(self) -> bool:
        return self.start != self.end

    @property
    def oldest_s(self) -> float:
        """When the first of its segments was sealed; now, where they do not say."""
        return min(self._sealed_ns, default=time.time_ns()) / 1e9

    @property
    def newest_s(self) -> float:
        """When the last of them was."""
        return max(self._sealed_ns, default=time.time_ns()) / 1e9

    @property
    def _sealed_ns(self) -> list[int]:
        every = (segment for group in self.work.groups for segment in group)
        return [segment.sealed_at_ns for segment in every if segment.sealed_at_ns]


@dataclass(frozen=True)
class Flush:
    """Takes batches to the lake, as the writer that has claimed its sources there.

    Goes to where the driver runs by pickling; what it has opened stays behind.
    """

    data_dir: Path
    lake_settings: LakeSettings
    settings: FlushSettings
    epochs: Mapping[str, int]
    """The claim on each table."""
    sources: frozenset[str]
    """What was claimed. Segments of others appeared since then, and wait for the next claim."""
    feed: Feed
    ending: Ending = field(default_factory=Ending)

    def __getstate__(self) -> dict[str, Any]:
        """Only what it was made of."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __call__(self, described: DataFrame, number: int) -> None:
        """For `foreachBatch`. What it raises has committed nothing of that table."""
        with self.ending.batch() as begins:
            if begins:
                self._take(described, number)

    def _take(self, described: DataFrame, number: int) -> None:
        started = time.monotonic()
        listed = map(self.feed.identified, _segments(described))
        segments = [each for each in listed if each.signal and each.place.source in self.sources]
        plans = [plan for plan in map(partial(self._plan, segments), TABLES) if plan.is_new]
        written = self._write(described.sparkSession, plans)
        reports = [self._finish(plan, written[plan.table]) for plan in plans]
        if plans:
            self.acknowledge()
            new = [each for plan in plans for group in plan.work.groups for each in group]
            report = BatchReport.of(number, reports, new, time.monotonic() - started)
            self._progress.add(report)

    def acknowledge(self) -> None:
        """Lets go of every segment that the lake has."""
        positions: dict[SourcePartition, Reached] = {}
        for table in self._tables.values():
            positions |= self._read(table)
        self.feed.acknowledge(positions)

    def _read(self, table: Table) -> dict[SourcePartition, Reached]:
        return of_sources(read_positions(table), self.sources)

    # --- planning ------------------------------------------------------------------------------

    def _plan(self, segments: Iterable[Segment], name: str) -> _Plan:
        table = self._tables[name]
        start = self._read(table)
        own = [each for each in segments if each.signal and table_of(each.signal) == name]
        new = [rest for each in own if (rest := rest_of(each, start)) is not None]
        end = _positions_after(start, new, numbered=self.feed.numbers_segments)
        key = batch_key(start, end, self.epochs[name])
        work = Work(name, Target.of(table), key, self._source, _groups(new), self._arrival(new))
        return _Plan(name, start, end, work)

    def _arrival(self, segments: Iterable[Segment]) -> Arrival:
        """By when they were sealed; what does not say came now."""
        now_ns = time.time_ns()
        came = [self._source.arrived_ns(each) or now_ns for each in segments] or [now_ns]
        first, last = (
            datetime.fromtimestamp(ns / 1e9, UTC).date() for ns in (min(came), max(came))
        )
        window_days = int(min(self.settings.day_window_s, _AGES_S) // DAY_S)
        return Arrival(first, last, window_days, self.settings.days_per_batch)

    def _write(self, spark: SparkSession, plans: Sequence[_Plan]) -> dict[str, list[Written]]:
        orders = [(plan.work, number) for plan in plans for number in range(len(plan.work.groups))]
        written: dict[str, list[Written]] = {plan.table: [] for plan in plans}
        for each in run_in_tasks(spark, _write_group, orders):
            written[each.table].append(each)
        for plan in plans:
            self._take_out_repeats(spark, plan, written[plan.table])
        return written

    def _take_out_repeats(self, spark: SparkSession, plan: _Plan, written: list[Written]) -> None:
        """What another task, or an earlier batch, has already."""
        window = self._windows.get(plan.table)
        if window is not None:
            window.forget(plan.oldest_s)
        pieces = [piece for each in written for piece in each.pieces]
        target, key = plan.work.target, plan.work.key
        orders = [
            Rewrite(plan.table, target, key, piece, unwanted, plan.work.arrival)
            for piece, unwanted in unwanted_rows(pieces, Window() if window is None else window)
        ]
        pairs = zip(orders, run_in_tasks(spark, rewritten, orders), strict=True)
        new = {order.piece.part: piece for order, piece in pairs}
        for each in written:
            before = each.rows
            each.pieces = [new.get(piece.part, piece) for piece in each.pieces]
            each.rows = sum(len(piece.keys) for piece in each.pieces)
            each.repeated += before - each.rows

    # --- committing ----------------------------------------------------------------------------

    def _finish(self, plan: _Plan, written: list[Written]) -> TableReport:
        faults = [fault for each in written for fault in each.faults]
        for fault in faults:
            _LOG.error("not all of a segment is in the lake: %s", fault.problem)
            self.feed.set_aside(fault.segment)
        pieces = [piece for each in written for piece in each.pieces]
        files = [file for piece in pieces for file in piece.files]
        window = self._windows.get(plan.table)
        self.feed.check()
        keys = [piece.lasting for piece in pieces]
        # Before the commit: what is killed after it has remembered its rows.
        run = window.write(keys, plan.end, plan.newest_s) if window is not None else None
        commit(
            self._tables[plan.table],
            files,
            start=plan.start,
            end=plan.end,
            epoch=self.epochs[plan.table],
        )
        if window is not None and run is not None:
            window.keep(run)
        far_off = Counter[str]()
        for piece in pieces:
            far_off.update(dict(piece.far_off))
        repeated = sum(each.repeated for each in written)
        return TableReport(plan.table, files, repeated, faults, far_off)

    # --- what is open --------------------------------------------------------------------------

    @cached_property
    def _tables(self) -> dict[str, Table]:
        lake = Lake.open(self.lake_settings)
        return {name: lake.table(name) for name in TABLES}

    @cached_property
    def _source(self) -> Segments:
        return self.feed.segments()

    @cached_property
    def _windows(self) -> dict[str, RepeatWindow]:
        """None where repeats across batches are let through."""
        seconds, most = self.settings.repeat_window_s, self.settings.repeat_rows
        if not seconds or not most:
            return {}
        root, now_s = self.data_dir / FOLDER, time.time()
        names = {name: str(table.metadata.table_uuid) for name, table in self._tables.items()}
        forget_other_tables(root, [*names.values()], now_s)
        windows = {
            name: RepeatWindow(
                root / names[name], read_positions(table), seconds=seconds, most=most
            )
            for name, table in self._tables.items()
        }
        if windows["spans"].is_new:
            remember_recent(self._tables["spans"], windows["spans"], most, now_s)
        return windows

    @cached_property
    def _progress(self) -> ProgressFile:
        return ProgressFile(self.data_dir)


def _segments(described: DataFrame) -> list[Segment]:
    return [each for rows in described.toArrow().to_batches() for each in segments_of(rows)]


def _write_group(order: tuple[Work, int]) -> Written:
    _leave_imports_alone()
    return write_group(*order)


@cache
def _leave_imports_alone() -> None:
    """Spark's workers collect garbage after every task: 0.1 s through all that is imported."""
    if TaskContext.get() is not None:
        gc.freeze()


def _positions_after(
    start: Positions, segments: Iterable[Segment], *, numbered: bool
) -> dict[SourcePartition, Reached]:
    """Damaged segments do not say where they end; the next one does."""
    end = dict(start)
    for segment in segments:
        before = end.get(segment.place, Reached(0, 0))
        offset = max(before.offset, segment.end_offset or 0)
        if numbered:
            seq = max(before.segment_seq, segment.segment_seq)
            sealed_at_ns = max(before.sealed_at_ns or 0, segment.sealed_at_ns) or None
            seals = seals_after(before.seals, segment)
            end[segment.place] = Reached(seq, offset, sealed_at_ns, seals)
        else:
            end[segment.place] = Reached(before.segment_seq, offset)
    return end


def _groups(segments: Iterable[Segment]) -> tuple[tuple[Segment, ...], ...]:
    """Of about the same size, none much over `GROUP_BYTES`."""
    ordered = sorted(segments, key=lambda segment: -segment.bytes)
    count = max(_CORES, -(-sum(each.bytes for each in ordered) // GROUP_BYTES))
    groups: list[list[Segment]] = [[] for _ in range(min(count, len(ordered)))]
    sizes = [(0, number) for number in range(len(groups))]
    for segment in ordered:
        size, number = heapq.heappop(sizes)
        groups[number].append(segment)
        heapq.heappush(sizes, (size + max(segment.bytes, 1), number))
    return tuple(map(tuple, groups))
