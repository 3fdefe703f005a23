"""Which tier has which message: the one place that decides, by offset.

    lake       everything below the partition's position
    segments   what they hold beyond it; of one that the lake has in part, the rest
    log        what is beyond both

Whoever takes segments to the lake, lets go of them, or answers a question asks here, so that every
message is in one tier and in no two, whatever moved the position: a flush of segments, or a replay
of the archive, whose objects are cut elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.schemas import ORIGIN
from penstock.model.positions import SourcePartition
from penstock.pipeline.segments import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.model.positions import Position, Positions
    from penstock.pipeline.segments import Segment

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
Ends: TypeAlias = "Mapping[SourcePartition, int]"
"""The offset behind the last message of each partition that is in the lake or in a segment."""
_MICROSECOND_NS: Final = 1000
"""Descriptors of segments that went through Spark are no more exact."""


def rest_of(segment: Segment, positions: Positions) -> Segment | None:
    """What of a segment the lake lacks; None: it has all of it, or has settled it.

    A damaged segment does not say where it begins: the lake settles it as a whole, and its number
    tells so where no neighbour says where it ends. One that only has the offsets of what the lake
    has, and is another, the lake lacks.
    """
    position = positions.get(segment.place)
    if position is None or is_another(segment, position):
        return segment
    if segment.state is State.DAMAGED and segment.segment_seq <= position.segment_seq:
        return None
    if segment.end_offset is None:
        return segment
    if segment.end_offset <= position.offset:
        return None
    if segment.first_offset is None or segment.first_offset >= position.offset:
        return segment
    return replace(segment, begin=position.offset)


def is_another(segment: Segment, position: Position) -> bool:
    """Whether it has offsets that the lake has, and was sealed after all that the lake has.

    Then offsets were given twice: the directory was restored from an older copy, or is a copy.
    """
    sealed_at_ns, first = position.sealed_at_ns, segment.first_offset
    if sealed_at_ns is None or first is None or first >= position.offset:
        return False
    return segment.sealed_at_ns // _MICROSECOND_NS > sealed_at_ns // _MICROSECOND_NS


def ends(positions: Positions, segments: Iterable[Segment]) -> Ends:
    """Where the log begins to be the only one that has a message."""
    found = {place: position.offset for place, position in positions.items()}
    for segment in segments:
        found[segment.place] = max(found.get(segment.place, 0), segment.end_offset or 0)
    return found


def in_rest(segment: Segment, rows: Rows) -> Rows:
    """The rows of a segment's messages that the lake lacks, as `rest_of` said."""
    return rows if segment.begin is None else from_offset(rows, segment.begin)


def beyond(rows: Rows, tiers: Ends) -> Rows:
    """The rows of the log that no other tier has. All are of one partition."""
    if not rows.num_rows:
        return rows
    *place, _ = ORIGIN
    source, topic, partition = (rows[name][0].as_py() for name in place)
    return from_offset(rows, tiers.get(SourcePartition(source, topic, partition), 0))


def from_offset(rows: Rows, offset: int) -> Rows:
    """The rows of messages from the offset on."""
    wanted = pc.greater_equal(rows["_offset"], pa.scalar(offset, pa.int64()))
    return rows if pc.all(wanted).as_py() is not False else rows.filter(wanted)
