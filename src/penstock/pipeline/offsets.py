"""How far a stream has read, in words that a person can check against the data directory.

    {"/default/traces/0": {"segment_seq": 42, "offset": 1337}, …}

Of that partition everything is read before segment 42 and before message 1337. A partition that is
not named is read from the first segment that it has. The offsets at the end of the first batch that
reads a partition keep where it began (`first`): Spark does not, and the batch must be the same one
when it is run again. Whose partitions they are is not said: the stream reads one place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from penstock.model.errors import InvalidArgument
from penstock.model.positions import Reached, SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.model.positions import Positions
    from penstock.tiers.segments import Segment


class End(NamedTuple):
    """Where a batch ended in a partition."""

    at: Reached
    first: Reached | None = None
    """Where it began, if it was the first to read the partition."""


Ends: TypeAlias = Mapping[SourcePartition, End]
"""By partition, without a source."""

_NUMBERS = ("segment_seq", "offset")


def encode_offsets(ends: Ends) -> dict[str, dict[str, Any]]:
    """As Spark keeps it in its checkpoint, in the order of partitions."""
    return {str(key): _encode(end) for key, end in sorted(ends.items())}


def decode_offsets(document: object) -> dict[SourcePartition, End]:
    """What `encode_offsets` made, or a person wrote; InvalidArgument for anything else."""
    if not isinstance(document, Mapping):
        raise InvalidArgument("offsets are a JSON object with an entry for each partition")
    return {SourcePartition.parse(key): _decode(key, each) for key, each in document.items()}


def parse_offsets(text: str) -> dict[SourcePartition, End]:
    """The same from text."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"{text[:80]!r} is neither earliest, latest nor JSON") from None
    return decode_offsets(document)


def offsets_of(positions: Positions) -> str:
    """The text of where a stream goes on that has come so far."""
    ends = {place.unsourced: End(reached) for place, reached in positions.items()}
    return json.dumps(encode_offsets(ends))


def reached(ends: Ends) -> dict[SourcePartition, Reached]:
    """Of each partition."""
    return {key: end.at for key, end in ends.items()}


def ends_before(segments: Iterable[Segment]) -> dict[SourcePartition, End]:
    """Where to begin to read all of these, which are in the order of each partition."""
    found: dict[SourcePartition, End] = {}
    for segment in segments:
        found.setdefault(segment.place.unsourced, End(_before(segment)))
    return found


def ends_after(
    start: Ends, segments: Iterable[Segment], *, is_first: bool = False
) -> dict[SourcePartition, End]:
    """Where to go on after these, which follow `start` in the order of each partition.

    `is_first`: nothing was read before `start`.
    """
    found, firsts = dict(start), dict[SourcePartition, Reached]()
    for segment in segments:
        key = segment.place.unsourced
        before = found[key].at if key in found else None
        if is_first or key not in start:
            firsts.setdefault(key, before or _before(segment))
        found[key] = End(after(before, segment), firsts.get(key))
    return found


def after(before: Reached | None, segment: Segment) -> Reached:
    """Behind a segment; where what it held is not known, no message further."""
    end = segment.end_offset
    if end is None:
        end = 0 if before is None else before.offset
    return Reached(segment.segment_seq, end)


def _before(segment: Segment) -> Reached:
    return Reached(segment.segment_seq - 1, segment.first_offset or 0)


def _encode(end: End) -> dict[str, Any]:
    fields = {"segment_seq": end.at.segment_seq + 1, "offset": end.at.offset}
    return fields if end.first is None else {**fields, "first": _encode(End(end.first))}


def _decode(key: str, fields: Any) -> End:
    if not isinstance(fields, Mapping) or not {*_NUMBERS} <= {*fields} <= {*_NUMBERS, "first"}:
        raise InvalidArgument(f"{key} has a segment_seq and an offset, and nothing else")
    segment_seq, offset = (fields[name] for name in _NUMBERS)
    if any(type(number) is not int or number < 0 for number in (segment_seq, offset)):
        raise InvalidArgument(f"segment_seq and offset of {key} are numbers from 0 on")
    first = _decode(key, fields["first"]).at if "first" in fields else None
    return End(Reached(segment_seq - 1, offset), first)
