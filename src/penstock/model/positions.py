"""The one coordinate of a message: its source, topic, partition and offset.

Offsets count from 0 in every data directory, so what names a message names the directory, too. A
`source` is whoever gave the offset:

    the id in penstock.json      a data directory, and what was archived of it
    the id of a queue            its batches
    UNKNOWN                      rows and positions that 0.1 wrote, which did not say

Pure: no files, no Iceberg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

UNKNOWN: Final = ""
"""The source where nobody said which one it is. It is nobody's: see `pipeline.adoption`."""

KEPT_SEALS: Final = 8
"""Of the segments that a partition's position remembers. Older ones are known by when the last was
sealed, and a directory that has come apart from the lake has a later one, too."""

QUEUE_PARTITION: Final = 65_535
"""Of everything that came through a queue; no data directory has so many partitions."""


class SourcePartition(NamedTuple):
    """A partition of a topic, of one source; `topic` is written `/namespace/name`."""

    source: str
    topic: str
    partition: int

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.topic}/{self.partition} of {self.source or 'an unknown source'}"


class Seal(NamedTuple):
    """What tells a segment from another one of the same number."""

    segment_seq: int
    end_offset: int
    sealed_at_us: int
    """What went through Spark is no more exact."""


class Position(NamedTuple):
    """Every message below `offset`, of the segments up to `segment_seq`, is in the table.

    Or it was set aside, when it could not be read. The next batch begins at `offset`. Offsets
    decide; the number is for segments that cannot say theirs.
    """

    segment_seq: int
    offset: int
    sealed_at_ns: int | None = None
    """When the last of them was sealed; None where not all came from segments, as after a replay,
    or where 0.1 wrote it. A segment below `offset` that was sealed later is another's."""
    seals: tuple[Seal, ...] = ()
    """Of the last few, by number: a segment of such a number that has another seal is another's."""


Positions: TypeAlias = "Mapping[SourcePartition, Position]"
"""A partition that is not in it has not been read at all."""


def of_sources(positions: Positions, sources: Collection[str]) -> dict[SourcePartition, Position]:
    """Those of some sources; nobody's business are the others."""
    return {key: position for key, position in positions.items() if key.source in sources}


def sources_in(positions: Positions) -> frozenset[str]:
    """Whose positions they are."""
    return frozenset(key.source for key in positions)


def check_forward(start: Positions, end: Positions) -> None:
    """InvalidArgument unless `end` names all that `start` does, and nothing goes back."""
    for key, position in start.items():
        if key not in end:
            raise InvalidArgument(f"the end of the batch has no position of {key}")
        if end[key].offset < position.offset or end[key].segment_seq < position.segment_seq:
            raise InvalidArgument(f"{key} would go back from {position} to {end[key]}")
