"""The three tiers at one moment: every acknowledged row in one of them, and in no two.

Data move from the log to segments to the lake, and are deleted behind. So the tiers are looked at
in that order: what moves meanwhile is seen twice, and the later tier has it; nothing is missed.
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.glance import NOTHING, Glance, glance, glance_at_positions
from penstock.lake.positions import Source
from penstock.lake.schemas import TABLES, signal_of
from penstock.model.errors import Damaged
from penstock.pipeline.segments import DirectorySegments, State
from penstock.query.hot import hot_rows
from penstock.query.warm import open_segment, warm_rows
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from penstock.lake.positions import Positions
    from penstock.lake.settings import LakeSettings
    from penstock.otel.signals import Signal
    from penstock.pipeline.segments import Segment
    from penstock.segment import SegmentReader


class Tier(enum.StrEnum):
    """Where rows are."""

    HOT = "hot"
    """In the log, not sealed yet."""
    WARM = "warm"
    """In sealed segments that the lake does not have yet."""
    COLD = "cold"
    """In the lake."""


ALL: Final = frozenset(Tier)


@dataclass(slots=True)
class TableTiers:
    """What a table consists of."""

    cold: Glance
    fresh: dict[Tier, pa.Table]
    """The rows of the other tiers."""
    seconds: dict[Tier, float] = field(default_factory=dict)


def look(
    data_dir: Path,
    lake: LakeSettings,
    table: str,
    tiers: Collection[Tier],
    warn: Callable[[str], None],
) -> TableTiers:
    """The tiers of a table; those that are not asked for are empty.

    What cannot be read is left out, with a warning that names it.
    """
    looking = _Look(data_dir, lake, table, warn)
    found = TableTiers(NOTHING, {})
    hot = warm = None
    started = time.perf_counter()
    if Tier.HOT in tiers:
        hot = looking.hot()
        found.seconds[Tier.HOT] = time.perf_counter() - started
    segments = looking.segments()
    started = time.perf_counter()
    # Positions are needed for the others, even if the rows of the lake are not asked for.
    at_once = _cold(lake, table, warn)
    found.seconds[Tier.COLD] = time.perf_counter() - started
    if Tier.COLD in tiers:
        found.cold = at_once
    started = time.perf_counter()
    beyond = [(each, reader) for each, reader in segments if _is_beyond(each, at_once)]
    if Tier.WARM in tiers:
        warm = [batch for each in beyond for batch in looking.warm(*each)]
        found.fresh[Tier.WARM] = pa.Table.from_batches(warm, TABLES[table])
        found.seconds[Tier.WARM] = time.perf_counter() - started
    if hot is not None:
        ends = _ends(at_once.positions, (each for each, _ in segments))
        found.fresh[Tier.HOT] = _from_offsets(pa.Table.from_batches(hot, TABLES[table]), ends)
    return found


class _Look:
    """One look at what a data directory has of a table."""

    def __init__(
        self, data_dir: Path, lake: LakeSettings, table: str, warn: Callable[[str], None]
    ) -> None:
        self._lake = lake
        self._table = table
        self._signal: Signal = signal_of(table)
        self._directory = DataDirectory(data_dir)
        self._source = DirectorySegments(data_dir, topics=frozenset({self._signal.value}))
        self._warn = warn

    def hot(self) -> list[pa.RecordBatch]:
        # What was sealed a moment ago is still sealed, so there is no need to decode it.
        known = _quietly(lambda: glance_at_positions(self._lake, self._table))
        sealed = _ends(known or {}, self._source.since({}))
        return [
            batch
            for partition in self._directory.partitions()
            if partition.topic.name == self._signal.value
            for batch in hot_rows(
                partition,
                self._signal,
                sealed.get(Source(str(partition.topic), partition.number), 0),
                self._warn,
            )
        ]

    def segments(self) -> list[tuple[Segment, SegmentReader | None]]:
        """With their readers: what is open can be read though it is deleted."""
        return [
            (segment, open_segment(self._source, segment, self._warn))
            for segment in self._source.since({})
        ]

    def warm(self, segment: Segment, reader: SegmentReader | None) -> list[pa.RecordBatch]:
        if segment.state is not State.SEALED:
            self._warn(segment.problem or f"{segment.path} is {segment.state}")
        if reader is None:
            return []
        return warm_rows(segment, reader, self._signal, self._warn)


def _cold(lake: LakeSettings, table: str, warn: Callable[[str], None]) -> Glance:
    try:
        return glance(lake, table)
    except Damaged as error:
        warn(str(error))
        return NOTHING


def _is_beyond(segment: Segment, cold: Glance) -> bool:
    at = cold.positions.get(Source(segment.topic, segment.partition))
    return at is None or segment.segment_seq > at.segment_seq


def _quietly(positions: Callable[[], Positions]) -> Positions | None:
    try:
        return positions()
    except Damaged:
        return None  # the look at the lake says so


def _ends(positions: Positions, segments: Iterable[Segment]) -> dict[Source, int]:
    """The offset behind the last message of each partition that is sealed or in the lake."""
    ends = {source: position.offset for source, position in positions.items()}
    for segment in segments:
        source = Source(segment.topic, segment.partition)
        ends[source] = max(ends.get(source, 0), segment.end_offset or 0)
    return ends


def _from_offsets(rows: pa.Table, ends: dict[Source, int]) -> pa.Table:
    """Without the rows of messages that another tier has."""
    for source, end in ends.items():
        other = pc.or_(
            pc.not_equal(rows["_topic"], source.topic),
            pc.not_equal(rows["_partition"], source.partition),
        )
        rows = rows.filter(pc.or_(other, pc.greater_equal(rows["_offset"], end)))
    return rows
