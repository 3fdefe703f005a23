"""The three tiers at one moment: every acknowledged row in one of them, and in no two.

Data move from the log to segments to the lake, and are deleted behind. So the tiers are looked at
in that order: what moves meanwhile is seen twice, and the later tier has it; nothing is missed.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from penstock.lake.glance import NOTHING, Glance, glance, glance_at_positions
from penstock.lake.schemas import TABLES, signal_of
from penstock.model.errors import Damaged, DataMoved, ForeignPosition, OffsetUnavailable
from penstock.model.positions import SourcePartition, of_sources, sources_in
from penstock.storage import DataDirectory
from penstock.store.outside import read_given
from penstock.tiers.adoption import DirectoryAdoption, adopted
from penstock.tiers.cut import ALL, Tier, check_own, ends, from_offset, in_rest, rest_of
from penstock.tiers.findings import Findings, Lack
from penstock.tiers.holes import look_at_logs, missing_files
from penstock.tiers.pieces import Piece
from penstock.tiers.segments import DirectorySegments
from penstock.tiers.tails import TAILS
from penstock.tiers.warm import WarmSegment, open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import Positions
    from penstock.otel.signals import Signal
    from penstock.storage import Partition
    from penstock.tiers.cut import Ends
    from penstock.tiers.holes import Logs
    from penstock.tiers.segments import Segment
    from penstock.tiers.warm import Opened


LOOKS: Final = 4
"""What is not there is looked for so often before it counts as missing: data move."""
PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a table is to be found."""

    table: str
    tiers: Collection[Tier] = ALL
    namespaces: frozenset[str] | None = None
    """Fresh rows are those of these alone; files of the lake may have others."""
    slim: Callable[[Glance], bool] = lambda _: False
    """Whether fresh rows may lack the large columns: what they are called, the table says."""
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


def look(data_dir: Path, lake: LakeSettings, asked: Asked, said: Findings) -> TableTiers:
    """The tiers of a table; those that are not asked for are empty.

    Data that move while they are looked at are looked for again; DataMoved where they always do.
    What cannot be read, by the last of several looks, is left out and is missing in `said`.
    """
    for number in range(1, LOOKS + 1):
        seen = Findings()
        try:
            found = _look(data_dir, lake, asked, seen)
        except OffsetUnavailable as error:
            if number == LOOKS:
                raise DataMoved(f"it was moved each time: {error}") from error
        else:
            if number == LOOKS or not seen.missing:
                said.add(seen)
                return found
        time.sleep(PAUSE_S * 2**number)
    raise AssertionError("the last look returns or raises")


def _look(data_dir: Path, lake: LakeSettings, asked: Asked, said: Findings) -> TableTiers:
    """Once. OffsetUnavailable: a segment was deleted that the lake does not have."""
    looking = _Look(data_dir, lake, asked, said)
    found = TableTiers(NOTHING, {})
    hot: list[tuple[SourcePartition, Piece]] = []
    started = time.perf_counter()
    if Tier.HOT in asked.tiers:
        hot = looking.hot()
        found.seconds[Tier.HOT] = time.perf_counter() - started
    logs = looking.logs()
    segments = looking.segments()
    started = time.perf_counter()
    # Positions are needed for the others, even if the rows of the lake are not asked for.
    listed = [each.segment for each in segments]
    at_once = glance_at_lake(data_dir, lake, asked.table, listed, said, asked.namespaces)
    found.seconds[Tier.COLD] = time.perf_counter() - started
    found.cold = at_once if Tier.COLD in asked.tiers else replace(at_once, files=())
    started = time.perf_counter()
    if Tier.WARM in asked.tiers:
        rests = [(rest_of(each.segment, at_once.positions), each) for each in segments]
        warm = [replace(each, segment=rest) for rest, each in rests if rest is not None]
        found.segments = [each.segment for each in warm]
        slim = asked.slim(at_once)
        found.fresh[Tier.WARM] = [looking.warm(each, slim) for each in warm]
        found.seconds[Tier.WARM] = time.perf_counter() - started
    if Tier.HOT in asked.tiers:
        known = ends(at_once.positions, listed)
        # Neither the rows of messages that another tier has, nor what the log lacks of those.
        found.fresh[Tier.HOT] = [_beyond(piece, known.get(place, 0)) for place, piece in hot]
    said.missing += [
        lack for pieces in found.fresh.values() for piece in pieces for lack in piece.lacks
    ]
    for gone in missing_files(logs, [each.segment for each in segments], at_once.positions):
        if (Tier.WARM if gone.was_sealed else Tier.HOT) in asked.tiers:
            said.lack(str(gone))
    return found


class _Look:
    """One look at what a data directory has of a table."""

    def __init__(self, data_dir: Path, lake: LakeSettings, asked: Asked, said: Findings) -> None:
        self._lake = lake
        self._asked = asked
        self._signal: Signal = signal_of(asked.table)
        self._directory = DataDirectory(data_dir)
        topics = frozenset({self._signal.value})
        self._source = DirectorySegments(data_dir, topics=topics, namespaces=asked.namespaces)
        self._said = said

    def hot(self) -> list[tuple[SourcePartition, Piece]]:
        sealed = sealed_ends(self._directory.root, self._lake, self._asked.table, self._source)
        identity = self._directory.identity()
        found = []
        for partition in self._partitions():
            place = SourcePartition(identity, str(partition.topic), partition.number)
            pieces = TAILS.pieces(partition, self._signal, sealed.get(place, 0), self._said)
            found += [(place, piece) for piece in pieces]
        return found

    def logs(self) -> Logs:
        return look_at_logs(self._directory.identity(), self._partitions())

    def _partitions(self) -> Iterator[Partition]:
        chosen = self._asked.namespaces
        for partition in self._directory.partitions():
            topic = partition.topic
            if topic.name == self._signal.value and (chosen is None or topic.namespace in chosen):
                yield partition

    def segments(self) -> list[Opened]:
        """With their readers: what is open can be read though it is deleted."""
        return [open_segment(self._source, segment) for segment in self._source.since({})]

    def warm(self, opened: Opened, slim: bool) -> Piece:
        """Of a segment that the lake does not have, or the rest of one that it has in part."""
        if isinstance(opened.problem, OffsetUnavailable):
            raise opened.problem
        table, segment = self._asked.table, opened.segment
        if opened.reader is None:
            lack = Lack(segment.problem or str(opened.problem))
            return Piece(table, TABLES[table].empty_table(), lacks=(lack,))
        warm = WarmSegment(table, segment, opened.reader)
        piece = warm.piece(slim, self._asked.trace_ids)
        self._said.notes += piece.notes
        return piece.with_rows(in_rest(segment, piece.rows))


def sealed_ends(data_dir: Path, lake: LakeSettings, table: str, source: DirectorySegments) -> Ends:
    """From where on the log is read: what was sealed a moment ago still is."""
    positions: Positions = {}
    segments = source.since({})
    # What is wrong with the lake, the look at it says afterwards.
    with contextlib.suppress(Damaged, ForeignPosition):
        found = glance_at_positions(lake, table)
        check_own(data_dir, segments, found)
        positions = found
    return ends(positions, segments)


def glance_at_lake(
    data_dir: Path,
    lake: LakeSettings,
    table: str,
    segments: list[Segment],
    said: Findings,
    namespaces: frozenset[str] | None,
) -> Glance:
    """What the lake has, with positions as the directory's pipeline finds them.

    Nothing where it was never there, and missing where it cannot be read. Where its positions
    cannot be those of the directory, which has these segments, it has nothing of that. Positions
    are those of the namespaces alone, and so is what is said: nobody reads of others' topics.
    """
    try:
        found = glance(lake, table)
        if not found.is_there:
            _check_never_given(data_dir, lake, table, namespaces)
    except Damaged as error:
        said.lack(str(error))
        return NOTHING
    own = DirectoryAdoption(data_dir, lake)
    everywhere = adopted(found.positions, found.claims, own)
    positions = {
        place: position for place, position in everywhere.items() if _is_of(place.topic, namespaces)
    }
    try:
        check_own(data_dir, segments, positions)
    except ForeignPosition as error:
        said.lack(str(error))
        positions = of_sources(positions, sources_in(positions) - {own.source})
    return replace(found, positions=positions)


def _is_of(topic: str, namespaces: frozenset[str] | None) -> bool:
    return namespaces is None or topic.removeprefix("/").partition("/")[0] in namespaces


def _check_never_given(
    data_dir: Path, lake: LakeSettings, table: str, namespaces: frozenset[str] | None
) -> None:
    """Damaged where a lake has had segments of the table's topics: they were deleted here."""
    topic = signal_of(table).value
    given = sorted(
        name
        for name in read_given(data_dir)
        if name.split("/")[-2] == topic and _is_of(name.rpartition("/")[0], namespaces)
    )
    if given:
        text = f"the lake at {lake.warehouse} has no table {table}"
        raise Damaged(f"{text}, though a lake was given segments of {', '.join(given)}")


def _beyond(piece: Piece, offset: int) -> Piece:
    return piece.with_rows(from_offset(piece.rows, offset), offset)
