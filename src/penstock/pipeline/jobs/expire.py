"""What is too old goes: rows, snapshots, and files that nothing refers to. Needs no Spark.

Rows leave a table at once; their files are deleted when no snapshot that is remembered has them
and their time of grace is over, by this or a later run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.lake.expire import expire_rows, expire_snapshots, old_files
from penstock.lake.orphans import remove_orphans
from penstock.lake.schemas import TABLES
from penstock.model.clock import SystemClock
from penstock.model.errors import PenstockError
from penstock.pipeline.jobs.basis import final_before, mark_final
from penstock.pipeline.jobs.rehearsal import old_snapshots, untouched
from penstock.pipeline.jobs.schemas import SHAPES
from penstock.pipeline.jobs.settings import ExpireSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyiceberg.table import Table

    from penstock.lake.tables import Lake
    from penstock.model.clock import Clock

EXPIRED_TABLES = (*TABLES, *SHAPES)


@dataclass(frozen=True, slots=True)
class ExpireReport:
    """What left a table, or would."""

    table: str
    rows: int = 0
    files: int = 0
    """That had those rows, and are still on disk."""
    snapshots: int = 0
    orphans: int = 0
    """Files that were deleted."""
    orphan_bytes: int = 0
    problem: str | None = None
    """Why the table is as it was, or some of it."""


def expire(
    lake: Lake,
    settings: ExpireSettings | None = None,
    *,
    tables: Iterable[str] = EXPIRED_TABLES,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> Iterator[ExpireReport]:
    """Has every table let go of what is too old, and reports each; a dry run changes nothing.

    Safe beside flush, compaction, rollup and readers; may be killed and repeated at any time, and
    finds nothing the second time. A table that fails is reported, and the others go on.
    """
    settings, clock = settings or ExpireSettings(), clock or SystemClock()
    for name in tables:
        table = lake.existing(name)
        if table is None:
            continue
        limits = _Limits.of(name, settings, clock)
        try:
            if dry_run:
                yield _rehearse(name, table, limits, clock)
            else:
                if name == "spans" and limits.day is not None:
                    _finish_rollups(lake, limits.day)
                yield _expire(name, table, limits, clock)
        except PenstockError as error:
            yield ExpireReport(name, problem=str(error))


@dataclass(frozen=True, slots=True)
class _Limits:
    """From when on a table keeps things."""

    day: date | None
    snapshots: datetime
    grace_s: float

    @classmethod
    def of(cls, name: str, settings: ExpireSettings, clock: Clock) -> _Limits:
        now = datetime.fromtimestamp(clock.wall_ns() / 1e9, UTC)
        age_s = settings.rollups_s if name in SHAPES else settings.rows_s
        day = None if age_s is None else (now - timedelta(seconds=age_s)).date()
        snapshots = now - timedelta(seconds=settings.snapshots_s)
        return cls(day, snapshots, settings.orphan_grace_s)


def _expire(name: str, table: Table, limits: _Limits, clock: Clock) -> ExpireReport:
    rows = files = 0
    if limits.day is not None:
        expired = expire_rows(table, limits.day)
        rows, files = expired.rows, expired.files
    snapshots = expire_snapshots(table, limits.snapshots)
    removed = remove_orphans(table, limits.grace_s, clock)
    return ExpireReport(name, rows, files, snapshots, removed.files, removed.bytes)


def _rehearse(name: str, table: Table, limits: _Limits, clock: Clock) -> ExpireReport:
    old = [] if limits.day is None else old_files(table, limits.day)
    snapshots = old_snapshots(table, limits.snapshots)
    removed = remove_orphans(untouched(table), limits.grace_s, clock)
    rows = sum(file.rows for file in old)
    return ExpireReport(name, rows, len(old), snapshots, removed.files, removed.bytes)


def _finish_rollups(lake: Lake, day: date) -> None:
    """Before spans go: what is computed of them stays, and is not computed of a late rest."""
    for name in SHAPES:
        table = lake.existing(name)
        if table is not None and final_before(table.properties) < day:
            mark_final(table, day)
