"""How the jobs of the lake work, and what they keep."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.lake.settings import ORPHAN_GRACE_S
from penstock.model.fields import Count, Duration, OrNone, Settings, Size, setting
from penstock.model.units import DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings(Settings):
    """Which files are merged, and into what."""

    target_bytes: Size = setting(
        128_000_000,
        "The size that files grow to. One of at least half of it is never read again, unless it "
        "has a row that another file has too.",
        key="target_size",
        over=0,
    )
    min_files: Count = setting(
        8,
        "A day is compacted when so many of its files are below half the target. Fewer means that "
        "rows are written more often.",
        least=2,  # one file is not merged
    )
    memory_bytes: Size = setting(
        200_000_000,
        "What a task may hold. Files that cannot be merged within it at once are merged in turns, "
        "each of which writes the rows again.",
        key="memory",
        over=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupSettings(Settings):
    """How far a trace reaches."""

    trace_max_s: Duration = setting(
        3600.0,
        "The longest time from the first to the last span of a trace that crosses midnight. So "
        "much of the days before and after is read with each day; a trace that lasts longer has a "
        "row in both days.",
        key="trace_max",
        least=0,
        most=DAY_S,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireSettings(Settings):
    """How long things stay. Days are whole: a row stays up to a day longer."""

    rows_s: OrNone[Duration] = setting(
        None,
        "Rows of spans, logs and metrics older than this go, by their event time. None: all stay.",
        key="older_than",
        least=0,
    )
    rollups_s: OrNone[Duration] = setting(
        None,
        "Rows of rollups older than this go. They are small, and may stay after the rows that they "
        "sum up.",
        key="rollups_older_than",
        least=0,
    )
    snapshots_s: Duration = setting(
        DAY_S,
        "Snapshots older than this are forgotten: no time travel beyond.",
        key="snapshots_older_than",
        least=0,
    )
    orphan_grace_s: Duration = setting(
        ORPHAN_GRACE_S,
        "A file that nothing refers to goes when it is older than this. It must be longer than any "
        "job or query takes.",
        key="orphan_grace",
        least=0,
    )
