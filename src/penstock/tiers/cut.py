"""Which tier has which message: the one place that decides, by offset.

    lake       everything below the partition's position
    segments   what they hold beyond it; of one that the lake has in part, the rest
    log        what is beyond both

Whoever takes segments to the lake, lets go of them, or answers a question asks here, so that every
message is in one tier and in no two, whatever moved the position: a flush of segments, or a replay
of the archive, whose objects are cut elsewhere.
"""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.schemas import ORIGIN
from penstock.model.errors import ForeignPosition
from penstock.model.positions import KEPT_SEALS, Seal, SourcePartition, of_sources
from penstock.model.topics import Topic
from penstock.storage import DataDirectory
from penstock.tiers.extent import end_of
from penstock.tiers.segments import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from penstock.model.positions import Positions, Reached
    from penstock.tiers.segments import Segment

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
Ends: TypeAlias = "Mapping[SourcePartition, int]"
"""The offset behind the last message of each partition that is in the lake or in a segment."""
_MICROSECOND_NS: Final = 1000
"""Descriptors of segments that went through Spark are no more exact."""


class Tier(enum.StrEnum):
    """Where rows are."""

    HOT = "hot"
    """In the log, not sealed yet."""
    WARM = "warm"
    """In sealed segments that the lake does not have yet."""
    COLD = "cold"
    """In the lake."""


ALL: Final = frozenset(Tier)


def rest_of(segment: Segment, positions: Positions) -> Segment | None:
    """What of a segment the lake lacks; None: it has all of it, or has settled it.

    A damaged segment is settled as a whole; where neither ack.log nor a neighbour says what it had,
    its number tells. One that only has the offsets of what the lake has, and is another, the lake
    lacks.
    """
    position = positions.get(segment.place)
    if position is None or is_another(segment, position):
        return segment
    is_unknown = segment.state is State.DAMAGED and segment.first_offset is None
    if segment.is_behind(position) or (is_unknown and segment.segment_seq <= position.segment_seq):
        return None
    if segment.first_offset is None or segment.first_offset >= position.offset:
        return segment
    return replace(segment, begin=position.offset)


def is_another(segment: Segment, position: Reached) -> bool:
    """Whether it has a number or offsets of what the lake took, and is not what the lake took.

    Then they were given twice: the directory was restored from an older copy, or is a copy. The
    lake took segments whole, so none lies across its position. After a replay one may, and nothing
    tells when the lake's messages were sealed; objects of the archive have no seal either.
    """
    first, end, latest_ns = segment.first_offset, segment.end_offset, position.sealed_at_ns
    if latest_ns is None or first is None or end is None or not _is_sealed(segment):
        return False
    own = seal_of(segment)
    for seal in position.seals:
        if seal.segment_seq == own.segment_seq:
            return seal != own
    if first >= position.offset:
        return False
    is_across = end > position.offset or segment.segment_seq > position.segment_seq
    return is_across or own.sealed_at_us > latest_ns // _MICROSECOND_NS


def seal_of(segment: Segment) -> Seal:
    """Of one that says what it holds."""
    end, sealed_at_us = segment.end_offset or 0, segment.sealed_at_ns // _MICROSECOND_NS
    return Seal(segment.segment_seq, end, sealed_at_us)


def seals_after(seals: tuple[Seal, ...], segment: Segment) -> tuple[Seal, ...]:
    """What the lake remembers when it has taken a segment, too; one that is damaged has no seal."""
    return (*seals, seal_of(segment))[-KEPT_SEALS:] if _is_sealed(segment) else seals


def _is_sealed(segment: Segment) -> bool:
    return segment.state is State.SEALED and segment.sealed_at_ns > 0


def check_own(data_dir: Path, segments: Iterable[Segment], positions: Positions) -> None:
    """ForeignPosition: what the lake says of a directory cannot be true of what is there.

    Asked by all who cut by these positions: a directory that passes over, lets go of, or leaves out
    of an answer what another one brought to the lake loses what it has acknowledged. The segments
    are those that were listed before the positions were read, or after; positions of other
    directories say nothing.
    """
    directory = DataDirectory(data_dir)
    reached: dict[SourcePartition, int] = {}
    for segment in segments:
        known = positions.get(segment.place)
        if known is not None and is_another(segment, known):
            offsets = f"of offsets {segment.first_offset} to {(segment.end_offset or 0) - 1}"
            which = f"{segment.path}, {offsets}, is not what the lake has there"
            raise _foreign(data_dir, segment.place, known, which)
        reached[segment.place] = max(reached.get(segment.place, 0), segment.end_offset or 0)
    for place, position in of_sources(positions, {directory.identity()}).items():
        if position.offset > reached.get(place, 0):
            partition = directory.partition(Topic.parse(place.topic), place.partition)
            end = end_of(partition, position.offset)
            if position.offset > end:
                raise _foreign(data_dir, place, position, f"its log ends at {end}")


def _foreign(
    data_dir: Path, place: SourcePartition, position: Reached, why: str
) -> ForeignPosition:
    return ForeignPosition(
        f"the lake has {place.topic}/{place.partition} of {data_dir} up to offset "
        f"{position.offset}, and {why}: it was restored from an older copy, or copied; "
        f"`penstock identity --new --data-dir {data_dir}` makes it a directory of its own"
    )


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
