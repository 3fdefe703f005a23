"""A table at one moment: every acknowledged row in one of three tiers, and in no two."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.lake.schemas import TABLES, signal_of
from penstock.tiers.cut import ALL, Tier, from_offset, in_rest
from penstock.tiers.findings import Lack
from penstock.tiers.look import Look, looked
from penstock.tiers.pieces import Piece
from penstock.tiers.tails import TAILS
from penstock.tiers.warm import WarmSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from penstock.lake.glance import Glance
    from penstock.lake.settings import LakeSettings
    from penstock.tiers.findings import Findings
    from penstock.tiers.segments import Segment
    from penstock.tiers.warm import Opened


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


def table_tiers(data_dir: Path, lake: LakeSettings, asked: Asked, said: Findings) -> TableTiers:
    """The tiers of a table; those that are not asked for are empty.

    As `looked` finds them: what cannot be read is left out, and is missing in `said`.
    """
    found, seen = looked(lambda told: _once(data_dir, lake, asked, told))
    said.add(seen)
    return found


def _once(data_dir: Path, lake: LakeSettings, asked: Asked, said: Findings) -> TableTiers:
    look = Look(data_dir, lake, asked.table, asked.namespaces, said)
    signal, seconds, started = signal_of(asked.table), dict[Tier, float](), time.perf_counter()
    hot = [
        (place, piece)
        for place, partition, start in (look.logs() if Tier.HOT in asked.tiers else ())
        for piece in TAILS.pieces(partition, signal, start, said)
    ]
    seconds[Tier.HOT], started = time.perf_counter() - started, time.perf_counter()
    behind = look.behind()
    seconds[Tier.COLD], started = time.perf_counter() - started, time.perf_counter()
    # Positions are needed for the others, even if the rows of the lake are not asked for.
    cold = behind.cold if Tier.COLD in asked.tiers else replace(behind.cold, files=())
    warm = behind.warm if Tier.WARM in asked.tiers else []
    slim = bool(warm) and asked.slim(behind.cold)
    fresh = {
        Tier.WARM: [_warm(each, asked, slim, said) for each in warm],
        # Neither the rows of messages that another tier has, nor what the log lacks of those.
        Tier.HOT: [_beyond(piece, behind.ends.get(place, 0)) for place, piece in hot],
    }
    seconds[Tier.WARM] = time.perf_counter() - started
    said.missing += [lack for pieces in fresh.values() for piece in pieces for lack in piece.lacks]
    for gone in behind.gone:
        if (Tier.WARM if gone.was_sealed else Tier.HOT) in asked.tiers:
            said.lack(str(gone))
    asked_for = {tier: seconds[tier] for tier in Tier if tier in {*asked.tiers, Tier.COLD}}
    return TableTiers(cold, fresh, [each.segment for each in warm], asked_for)


def _warm(opened: Opened, asked: Asked, slim: bool, said: Findings) -> Piece:
    """Of a segment that the lake does not have, or the rest of one that it has in part."""
    table, segment = asked.table, opened.segment
    if opened.reader is None:
        lack = Lack(segment.problem or str(opened.problem))
        return Piece(table, TABLES[table].empty_table(), lacks=(lack,))
    piece = WarmSegment(table, segment, opened.reader).piece(slim, asked.trace_ids)
    said.notes += piece.notes
    return piece.with_rows(in_rest(segment, piece.rows))


def _beyond(piece: Piece, offset: int) -> Piece:
    return piece.with_rows(from_offset(piece.rows, offset), offset)
