"""Segments that no file backs, and a listing of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.model.positions import Reached, SourcePartition
from penstock.otel import Signal
from penstock.pipeline.offsets import End
from penstock.tiers.segments import Segment, State

if TYPE_CHECKING:
    from penstock.model.positions import Positions
    from penstock.segment import SegmentReader

KEY = SourcePartition.parse("/default/traces/0")
OTHER = KEY._replace(partition=1)


def segment(
    seq: int,
    first: int | None = None,
    end: int | None = None,
    *,
    key: SourcePartition = KEY,
    size: int = 100,
    sealed_at_ns: int = 0,
) -> Segment:
    """One with ten messages for each number before it, unless told otherwise."""
    first = seq * 10 if first is None else first
    offsets = (first, first + 10 if end is None else end)
    path = f"{key}/{seq}.seg"
    place = key._replace(source="here")
    return Segment(place, seq, path, *offsets, size, 1, 10, sealed_at_ns, Signal.TRACES)


def at(next_seq: int, offset: int, first: End | None = None) -> End:
    """An end, by the next number and the next offset, as its JSON has them."""
    return End(Reached(next_seq - 1, offset), None if first is None else first.at)


def damaged(seq: int) -> Segment:
    """One that cannot be read."""
    parts = {"first_offset": None, "end_offset": None, "state": State.DAMAGED, "problem": "broken"}
    return replace(segment(seq), **parts)  # type: ignore[arg-type] # each has its field's type


def seqs(segments: list[Segment]) -> list[int]:
    """Their numbers; those that stand for what is gone are negative."""
    return [
        -each.segment_seq if each.state is State.GONE else each.segment_seq for each in segments
    ]


@dataclass
class Listing:
    """`Segments` from a list."""

    segments: list[Segment]

    def since(self, positions: Positions) -> list[Segment]:
        """Those at or after the positions."""
        return [
            each
            for each in sorted(self.segments, key=lambda each: (each.place, each.segment_seq))
            if (at := positions.get(each.place.unsourced)) is None or not each.is_behind(at)
        ]

    def open(self, segment: Segment) -> SegmentReader:
        """There is nothing to open."""
        raise FileNotFoundError(segment.path)

    def gone(self, key: SourcePartition, start: Reached, end_offset: int) -> Segment:
        """What stands for it."""
        missing = segment(start.segment_seq + 1, start.offset, end_offset, key=key, size=0)
        return replace(missing, state=State.GONE, problem="gone")
