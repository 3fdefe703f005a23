"""How far a stream has read, in words that a person can check against the data directory.

    {"/default/traces/0": {"segment_seq": 42, "offset": 1337}, …}

Of that partition everything is read before segment 42 and before message 1337. A partition that is
not named is read from the first segment that it has. The offsets at the end of the first batch that
reads a partition keep where it began (`first`): Spark does not, and the batch must be the same one
when it is run again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.tiers.segments import Segment


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading goes on in a partition."""

    segment_seq: int
    """The next segment."""
    offset: int
    """The next message."""
    first: Position | None = None
    """Where the batch began that ended here, if it was the first to read the partition."""


Positions: TypeAlias = Mapping[str, Position]
"""By partition: `/namespace/topic/number`."""

_NUMBERS = ("segment_seq", "offset")


def encode_positions(positions: Positions) -> dict[str, dict[str, Any]]:
    """As Spark keeps it in its checkpoint, in the order of partitions."""
    return {key: _encode(position) for key, position in sorted(positions.items())}


def decode_positions(document: object) -> dict[str, Position]:
    """What `encode_positions` made, or a person wrote; InvalidArgument for anything else."""
    if not isinstance(document, Mapping):
        raise InvalidArgument("offsets are a JSON object with an entry for each partition")
    return {key: _decode(key, fields) for key, fields in document.items()}


def parse_positions(text: str) -> dict[str, Position]:
    """The same from text."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"{text[:80]!r} is neither earliest, latest nor JSON") from None
    return decode_positions(document)


def positions_before(segments: Iterable[Segment]) -> dict[str, Position]:
    """Where to begin to read all of these, which are in the order of each partition."""
    found: dict[str, Position] = {}
    for segment in segments:
        found.setdefault(segment.key, _before(segment))
    return found


def positions_after(
    start: Positions, segments: Iterable[Segment], *, is_first: bool = False
) -> dict[str, Position]:
    """Where to go on after these, which follow `start` in the order of each partition.

    `is_first`: nothing was read before `start`.
    """
    found, firsts = dict(start), dict[str, Position]()
    for segment in segments:
        key = segment.key
        if is_first or key not in start:
            firsts.setdefault(key, start.get(key) or _before(segment))
        found[key] = Position(segment.segment_seq + 1, _end(segment, found), firsts.get(key))
    return found


def _before(segment: Segment) -> Position:
    return Position(segment.segment_seq, segment.first_offset or 0)


def _end(segment: Segment, positions: Positions) -> int:
    if segment.end_offset is not None:
        return segment.end_offset
    before = positions.get(segment.key)  # what the segment held is not known
    return before.offset if before is not None else 0


def _encode(position: Position) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(position, name) for name in _NUMBERS}
    return fields if position.first is None else {**fields, "first": _encode(position.first)}


def _decode(key: str, fields: Any) -> Position:
    if not isinstance(fields, Mapping) or not {*_NUMBERS} <= {*fields} <= {*_NUMBERS, "first"}:
        raise InvalidArgument(f"{key} has a segment_seq and an offset, and nothing else")
    segment_seq, offset = (fields[name] for name in _NUMBERS)
    if any(type(number) is not int or number < 0 for number in (segment_seq, offset)):
        raise InvalidArgument(f"segment_seq and offset of {key} are numbers from 0 on")
    first = _decode(key, fields["first"]) if "first" in fields else None
    return Position(segment_seq, offset, first)
