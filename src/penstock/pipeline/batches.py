"""What one batch reads: what lies between two positions, how much at once, and in which tasks."""

from __future__ import annotations

import heapq
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.pipeline.offsets import after, reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.model.positions import Reached, SourcePartition
    from penstock.pipeline.offsets import End, Ends
    from penstock.tiers.segments import Segment, Segments


@dataclass(frozen=True, slots=True)
class Admission:
    """How much a batch takes; None: everything. A batch takes at least one segment."""

    max_segments: int | None = None
    max_bytes: int | None = None
    min_bytes: int | None = None
    max_delay_s: float | None = None

    def is_due(self, listed: Sequence[Segment], now_s: float) -> bool:
        """Whether enough waits for a batch of its own, or something has waited long enough."""
        if self.min_bytes is None or sum(each.bytes for each in listed) >= self.min_bytes:
            return True
        oldest_ns = min((each.sealed_at_ns for each in listed), default=0)
        return self.max_delay_s is not None and now_s - oldest_ns / 1e9 >= self.max_delay_s

    def admit(self, listed: Iterable[Segment]) -> list[Segment]:
        """The first of them by the time of sealing, each partition in its own order."""
        taken: list[Segment] = []
        size = 0
        for segment in _oldest_first(listed):
            size += segment.bytes
            if taken and self._is_over(len(taken) + 1, size):
                break
            taken.append(segment)
        return taken

    def _is_over(self, segments: int, size: int) -> bool:
        too_many = self.max_segments is not None and segments > self.max_segments
        return too_many or (self.max_bytes is not None and size > self.max_bytes)


def before(listed: Iterable[Segment], end: Ends) -> list[Segment]:
    """Those that lie before `end`."""
    found = reached(end)
    return [
        each
        for each in listed
        if (key := each.place.unsourced) in found and each.is_behind(found[key])
    ]


def segments_between(segments: Segments, start: Ends, end: Ends) -> list[Segment]:
    """The segments from `start` up to `end`; where some should be and are not, one that is gone.

    A missing number alone is no loss: a store that could not be sure leaves some out. Messages are
    lost where numbers and offsets both are missing.
    """
    begin = {key: _begin(start.get(key), until) for key, until in end.items()}
    known = {key: at for key, at in begin.items() if at is not None}
    own = _by_partition(before(segments.since(known), end))
    return [
        segment
        for key, until in end.items()
        for segment in _with_gaps(segments, own.get(key, []), key, begin[key], until.at)
    ]


def _begin(start: End | None, end: End) -> Reached | None:
    """Where the batch was planned to begin; Spark may have forgotten that of its first one."""
    planned = None if start is None else start.at
    return planned if start == end else end.first or planned


def grouped(listed: Iterable[Segment], group_bytes: int) -> list[list[Segment]]:
    """Small neighbours together, up to `group_bytes`; a segment is never divided."""
    groups: list[list[Segment]] = []
    room = 0
    for segment in listed:
        room -= segment.bytes
        if not groups or room < 0:
            groups.append([])
            room = group_bytes - segment.bytes
        groups[-1].append(segment)
    return groups


def _by_partition(listed: Iterable[Segment]) -> dict[SourcePartition, list[Segment]]:
    found: dict[SourcePartition, list[Segment]] = {}
    for segment in listed:
        found.setdefault(segment.place.unsourced, []).append(segment)
    return found


def _oldest_first(listed: Iterable[Segment]) -> Iterator[Segment]:
    own = _by_partition(listed).values()
    return heapq.merge(*own, key=operator.attrgetter("sealed_at_ns"))


def _with_gaps(
    segments: Segments,
    listed: list[Segment],
    key: SourcePartition,
    at: Reached | None,
    end: Reached,
) -> Iterator[Segment]:
    for segment in listed:
        if at is not None and _is_gap(at, segment.segment_seq - 1, segment.first_offset):
            gone = segments.gone(key, at, segment.first_offset or at.offset)
            yield replace(gone, place=segment.place)
        yield segment
        at = after(at, segment)
    if at is not None and _is_gap(at, end.segment_seq, end.offset):
        yield segments.gone(key, at, end.offset)


def _is_gap(at: Reached, segment_seq: int, offset: int | None) -> bool:
    """Up to the segment of that number, and the message of that offset."""
    return segment_seq > at.segment_seq and offset is not None and offset > at.offset
