"""Segments, opened before anything of them is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.model import slots
from penstock.model.errors import Damaged, OffsetUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.pipeline.segments import DirectorySegments, Segment
    from penstock.segment import SegmentReader

LARGE_SLOTS: Final = frozenset(
    {
        *(slots.SPAN_ATTRS, slots.SPAN_EVENTS, slots.SPAN_EVENT_ATTRS),
        *(slots.SPAN_LINKS, slots.SPAN_LINK_ATTRS, slots.SCOPE_ATTRS),
    }
)
"""Of spans: what only their large columns are made of."""


def open_segment(
    source: DirectorySegments, segment: Segment, warn: Callable[[str], None]
) -> SegmentReader | None:
    """A mapped file stays readable when it is deleted. None: it is gone, or damaged."""
    try:
        return source.open(segment)
    except OffsetUnavailable:
        return None  # the lake has it by now
    except Damaged as error:
        warn(str(error))
        return None
