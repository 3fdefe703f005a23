"""Segments, opened before anything of them is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.model import slots
from penstock.model.errors import Damaged, OffsetUnavailable

if TYPE_CHECKING:
    from penstock.model.errors import PenstockError
    from penstock.segment import SegmentReader
    from penstock.tiers.segments import DirectorySegments, Segment

LARGE_SLOTS: Final = frozenset(
    {
        *(slots.SPAN_ATTRS, slots.SPAN_EVENTS, slots.SPAN_EVENT_ATTRS),
        *(slots.SPAN_LINKS, slots.SPAN_LINK_ATTRS, slots.SCOPE_ATTRS),
    }
)
"""Of spans: what only their large columns are made of."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A segment that was listed. A mapped file stays readable when it is deleted."""

    segment: Segment
    reader: SegmentReader | None
    problem: PenstockError | None = None
    """Why there is no reader: OffsetUnavailable, it was deleted since; or Damaged."""


def open_segment(source: DirectorySegments, segment: Segment) -> Opened:
    """Whether a problem matters is known when the lake was looked at, which may have it too."""
    try:
        return Opened(segment, source.open(segment))
    except (OffsetUnavailable, Damaged) as error:
        return Opened(segment, None, error)
