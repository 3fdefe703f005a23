"""How the jobs of the lake work, and what they keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.lake.orphans import GRACE_S
from penstock.model.errors import InvalidSetting

DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings:
    """Which files are merged, and into what."""

    target_bytes: int = 128_000_000
    """The size that files grow to. One of at least half of it is never read again, unless it has
    a row that another file has too."""

    min_files: int = 8
    """A day is compacted when so many of its files are below half the target. Fewer means that
    rows are written more often."""

    memory_bytes: int = 200_000_000
    """What a task may hold. Files that cannot be merged within it at once are merged in turns,
    each of which writes the rows again."""

    def __post_init__(self) -> None:
        """Refuses what cannot work."""
        if self.target_bytes <= 0:
            raise InvalidSetting("target_bytes must be over 0")
        if self.min_files < 2:
            raise InvalidSetting("min_files must be at least 2: one file is not merged")
        if self.memory_bytes <= 0:
            raise InvalidSetting("memory_bytes must be over 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupSettings:
    """How far a trace reaches."""

    trace_max_s: float = 3600.0
    """The longest time from the first to the last span of a trace that crosses midnight. So much
    of the days before and after is read with each day; a trace that lasts longer has a row in
    both days."""

    def __post_init__(self) -> None:
        """Refuses what cannot work."""
        if not 0 <= self.trace_max_s <= DAY_S:
            raise InvalidSetting("trace_max_s must be between 0 and a day")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireSettings:
    """How long things stay. Days are whole: a row stays up to a day longer."""

    rows_s: float | None = None
    """Rows of spans, logs and metrics older than this go, by their event time. None: all stay."""

    rollups_s: float | None = None
    """The same for rollups, which are small and may stay after the rows they sum up."""

    snapshots_s: float = DAY_S
    """Snapshots older than this are forgotten: no time travel beyond."""

    orphan_grace_s: float = GRACE_S
    """A file that nothing refers to goes when it is older than this. It must be longer than any
    job or query takes."""

    def __post_init__(self) -> None:
        """Refuses what cannot work."""
        for name in ("rows_s", "rollups_s", "snapshots_s", "orphan_grace_s"):
            if (getattr(self, name) or 0.0) < 0:
                raise InvalidSetting(f"{name} must not be negative")
