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
from penstock.lake.schemas import TABLES, signal_of
from penstock.model.errors import Damaged
from penstock.model.positions import SourcePartition
from penstock.pipeline.adoption import DirectoryAdoption, adopted
from penstock.pipeline.cut import beyond, ends, in_rest, rest_of
from penstock.pipeline.segments import DirectorySegments, State
from penstock.query.opening import open_segment
from penstock.query.pieces import Piece
from penstock.query.segments import WarmSegment
from penstock.query.tails import TAILS
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import Positions
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
    at_once = looking.cold()
    found.seconds[Tier.COLD] = time.perf_counter() - started
    found.cold = at_once if Tier.COLD in asked.tiers else replace(at_once, files=())
    started = time.perf_counter()
    if Tier.WARM in asked.tiers:
        rests = [(rest_of(each, at_once.positions), reader) for each, reader in segments]
        warm = [(rest, reader) for rest, reader in rests if rest is not None]
        found.segments = [segment for segment, _ in warm]
        found.fresh[Tier.WARM] = [looking.warm(*each) for each in warm]
        found.seconds[Tier.WARM] = time.perf_counter() - started
    if Tier.HOT in asked.tiers:
        known = ends(at_once.positions, (each for each, _ in segments))
        found.fresh[Tier.HOT] = [each.with_rows(beyond(each.rows, known)) for each in hot]
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
        sealed = ends(known or {}, self._source.since({}))
        identity = self._directory.identity()
        return [
            piece
            for partition in self._partitions()
            for piece in TAILS.pieces(
                partition,
                self._signal,
                sealed.get(SourcePartition(identity, str(partition.topic), partition.number), 0),
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

    def cold(self) -> Glance:
        """Its positions as the directory's pipeline finds them."""
        try:
            found = glance(self._lake, self._asked.table)
        except Damaged as error:
            self._warn(str(error))
            return NOTHING
        own = DirectoryAdoption(self._directory.root, self._lake)
        return replace(found, positions=adopted(found.positions, found.claims, own))

    def warm(self, segment: Segment, reader: SegmentReader | None) -> Piece:
        if segment.state is not State.SEALED:
            self._warn(segment.problem or f"{segment.path} is {segment.state}")
        table = self._asked.table
        if reader is None:
            return Piece(table, TABLES[table].empty_table())
        piece = WarmSegment(table, self._signal, segment, reader).piece(self._asked)
        for warning in piece.warnings:
            self._warn(warning)
        return piece.with_rows(in_rest(segment, piece.rows))


def _quietly(positions: Callable[[], Positions]) -> Positions | None:
    try:
        return positions()
    except Damaged:
        return None  # the look at the lake says so
