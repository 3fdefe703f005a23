"""The three tiers at one moment: every acknowledged row in one of them, and in no two.

Data move from the log to segments to the lake, and are deleted behind. So the tiers are looked at
in that order: what moves meanwhile is seen twice, and the later tier has it; nothing is missed.
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from penstock.lake.glance import NOTHING, Glance, glance, glance_at_positions
from penstock.lake.positions import Source
from penstock.lake.schemas import TABLES, signal_of
from penstock.model.errors import Damaged
from penstock.pipeline.segments import DirectorySegments, State, is_in_lake
from penstock.query.opening import open_segment
from penstock.query.pieces import Piece
from penstock.query.segments import WarmSegment
from penstock.query.tails import TAILS, from_offset
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from penstock.lake.positions import Positions
    from penstock.lake.settings import LakeSettings
    from penstock.otel.signals import Signal
    from penstock.pipeline.segments import Segment
    from penstock.segment import SegmentReader
    from penstock.storage import Partition


class Tier(enum.StrEnum):
    """Where rows are."""

    HOT = "hot"
    """In the log, not sealed yet."""
    WARM = "warm"
    """In sealed segments that the lake does not have yet."""
    COLD = "cold"
    """In the lake."""


ALL: Final = frozenset(Tier)


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a table is to be found."""

    table: str
    tiers: Collection[Tier] = ALL
    namespaces: frozenset[str] | None = None
    """Fresh rows are those of these alone; files of the lake may have others."""
    slim: bool = False
    """Fresh rows may lack the large columns."""
    trace_ids: frozenset[str] | None = None
    """Fresh rows of other traces may be left out."""


@dataclass(slots=True)
class TableTiers:
    """What a table consists of."""

    cold: Glance
    """Without files where the tier is not asked for."""
    fresh: dict[Tier, list[Piece]]
    """The rows of the other tiers."""
    segments: list[Segment] = field(default_factory=list)
    """Those of the warm tier, in the order of its pieces."""
    seconds: dict[Tier, float] = field(default_factory=dict)

    def rows(self, tier: Tier) -> int:
        """How many a tier has."""
        if tier is Tier.COLD:
            return sum(file.rows for file in self.cold.files)
        return sum(piece.rows.num_rows for piece in self.fresh.get(tier, ()))


def look(
    data_dir: Path, lake: LakeSettings, asked: Asked, warn: Callable[[str], None]
) -> TableTiers:
    """The tiers of a table; those that are not asked for are empty.

    What cannot be read is left out, with a warning that names it.
    """
    looking = _Look(data_dir, lake, asked, warn)
    found = TableTiers(NOTHING, {})
    hot: list[Piece] = []
    started = time.perf_counter()
    if Tier.HOT in asked.tiers:
        hot = looking.hot()
        found.seconds[Tier.HOT] = time.perf_counter() - started
    segments = looking.segments()
    started = time.perf_counter()
    # Positions are needed for the others, even if the rows of the lake are not asked for.
    at_once = _cold(lake, asked.table, warn)
    found.seconds[Tier.COLD] = time.perf_counter() - started
    found.cold = at_once if Tier.COLD in asked.tiers else replace(at_once, files=())
    started = time.perf_counter()
    if Tier.WARM in asked.tiers:
        beyond = [each for each in segments if not _is_cold(each[0], at_once)]
        found.segments = [segment for segment, _ in beyond]
        found.fresh[Tier.WARM] = [looking.warm(*each) for each in beyond]
        found.seconds[Tier.WARM] = time.perf_counter() - started
    if Tier.HOT in asked.tiers:
        ends = _ends(at_once.positions, (each for each, _ in segments))
        found.fresh[Tier.HOT] = [_unsealed(piece, ends) for piece in hot]
    return found


class _Look:
    """One look at what a data directory has of a table."""

    def __init__(
        self, data_dir: Path, lake: LakeSettings, asked: Asked, warn: Callable[[str], None]
    ) -> None:
        self._lake = lake
        self._asked = asked
        self._signal: Signal = signal_of(asked.table)
        self._directory = DataDirectory(data_dir)
        topics = frozenset({self._signal.value})
        self._source = DirectorySegments(data_dir, topics=topics, namespaces=asked.namespaces)
        self._warn = warn

    def hot(self) -> list[Piece]:
        # What was sealed a moment ago is still sealed, so there is no need to decode it.
        known = _quietly(lambda: glance_at_positions(self._lake, self._asked.table))
        sealed = _ends(known or {}, self._source.since({}))
        return [
            piece
            for partition in self._partitions()
            for piece in TAILS.pieces(
                partition,
                self._signal,
                sealed.get(Source(str(partition.topic), partition.number), 0),
                self._warn,
            )
        ]

    def _partitions(self) -> Iterator[Partition]:
        chosen = self._asked.namespaces
        for partition in self._directory.partitions():
            topic = partition.topic
            if topic.name == self._signal.value and (chosen is None or topic.namespace in chosen):
                yield partition

    def segments(self) -> list[tuple[Segment, SegmentReader | None]]:
        """With their readers: what is open can be read though it is deleted."""
        return [
            (segment, open_segment(self._source, segment, self._warn))
            for segment in self._source.since({})
        ]

    def warm(self, segment: Segment, reader: SegmentReader | None) -> Piece:
        if segment.state is not State.SEALED:
            self._warn(segment.problem or f"{segment.path} is {segment.state}")
        table = self._asked.table
        if reader is None:
            return Piece(table, TABLES[table].empty_table())
        piece = WarmSegment(table, self._signal, segment, reader).piece(self._asked)
        for warning in piece.warnings:
            self._warn(warning)
        return piece


def _cold(lake: LakeSettings, table: str, warn: Callable[[str], None]) -> Glance:
    try:
        return glance(lake, table)
    except Damaged as error:
        warn(str(error))
        return NOTHING


def _is_cold(segment: Segment, cold: Glance) -> bool:
    return is_in_lake(segment, cold.positions.get(Source(segment.topic, segment.partition)))


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


def _unsealed(piece: Piece, ends: dict[Source, int]) -> Piece:
    """Without the rows of messages that another tier has."""
    if not piece.rows.num_rows:
        return piece
    topic, partition = (piece.rows[name][0].as_py() for name in ("_topic", "_partition"))
    return from_offset(piece, ends.get(Source(topic, partition), 0))
