"""Segments that no file backs, and a listing of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.otel import Signal
from penstock.tiers.segments import Segment, State

if TYPE_CHECKING:
    from penstock.segment import SegmentReader
    from penstock.tiers.offsets import Position, Positions

KEY = "/default/traces/0"
OTHER = "/default/traces/1"


def segment(
    seq: int,
    first: int | None = None,
    end: int | None = None,
    *,
    key: str = KEY,
    size: int = 100,
    sealed_at_ns: int = 0,
) -> Segment:
    """One with ten messages for each number before it, unless told otherwise."""
    topic, _, number = key.rpartition("/")
    first = seq * 10 if first is None else first
    offsets = (first, first + 10 if end is None else end)
    path = f"{key}/{seq}.seg"
    place = ("here", topic.split("/")[1], topic, int(number), seq, path)
    return Segment(*place, *offsets, size, 1, 10, sealed_at_ns, Signal.TRACES)


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
            for each in sorted(self.segments, key=lambda each: (each.key, each.segment_seq))
            if each.key not in positions or each.segment_seq >= positions[each.key].segment_seq
        ]

    def open(self, segment: Segment) -> SegmentReader:
        """There is nothing to open."""
        raise FileNotFoundError(segment.path)

    def gone(self, key: str, start: Position, end_offset: int) -> Segment:
        """What stands for it."""
        missing = segment(start.segment_seq, start.offset, end_offset, key=key, size=0)
        return replace(missing, state=State.GONE, problem="gone")
