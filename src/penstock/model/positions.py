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
    """A partition of a topic, of one source; `topic` is written `/namespace/name`.

    The one key of a partition. As text `<source>/<namespace>/<name>/<partition>`: a source has no
    slash, and without one it is how people, Spark's offsets and `delivered.json` name a partition
    of the one directory that they are about.
    """

    source: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.source}{self.topic}/{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SourcePartition:
        """From its text; InvalidArgument for anything else."""
        place, _, number = text.rpartition("/")
        source, slash, name = place.partition("/")
        if not slash or not (number.isascii() and number.isdecimal()):
            raise InvalidArgument(f"{text[:80]!r} names no partition, as /default/traces/0 does")
        return cls(source, f"/{name}", int(number))

    @property
    def namespace(self) -> str:
        """Of the topic."""
        return self.topic.split("/")[1]

    @property
    def unsourced(self) -> SourcePartition:
        """The same partition, where it goes without saying whose."""
        return self._replace(source=UNKNOWN)

    def at(self, offset: int) -> Position:
        """A position in it."""
        return Position(*self, offset)


class Position(NamedTuple):
    """The place of one message: the next one, of whoever has come to it.

    So everything before it is done with, and it is not; `last` is the one that was done with last.
    In the order of source, topic, partition and offset. As text `<partition's text>@<offset>`.
    """

    source: str
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.place}@{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """From its text; InvalidArgument for anything else."""
        place, _, offset = text.rpartition("@")
        if not (offset.isascii() and offset.isdecimal()):
            raise InvalidArgument(f"{text[:80]!r} is no position, as /default/traces/0@1337 is")
        return SourcePartition.parse(place).at(int(offset))

    @property
    def place(self) -> SourcePartition:
        """The partition that it is in."""
        return SourcePartition(*self[:3])

    @property
    def last(self) -> int | None:
        """The offset before it; None: there is none."""
        return self.offset - 1 if self.offset else None

    def after(self, messages: int) -> Position:
        """So many messages further on."""
        return self._replace(offset=self.offset + messages)


class Seal(NamedTuple):
    """What tells a segment from another one of the same number."""

    segment_seq: int
    end_offset: int
    sealed_at_us: int
    """What went through Spark is no more exact."""


class Reached(NamedTuple):
    """How far somebody has come in a partition: every message below `offset` is done with.

    In the table, or set aside when it could not be read. `offset` is the next one, as that of a
    `Position`, and decides. Whether a file is missing between two others, their numbers tell.
    """

    segment_seq: int
    """The last segment of which it has something; -1: none."""
    offset: int
    sealed_at_ns: int | None = None
    """When the last of them was sealed; None where not all came from segments, as after a replay,
    or where 0.1 wrote it. A segment below `offset` that was sealed later is another's."""
    seals: tuple[Seal, ...] = ()
    """Of the last few, by number: a segment of such a number that has another seal is another's."""


Positions: TypeAlias = "Mapping[SourcePartition, Reached]"
"""A partition that is not in it has not been read at all."""


def of_sources(positions: Positions, sources: Collection[str]) -> dict[SourcePartition, Reached]:
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
        if end[key].offset < position.offset:
            raise InvalidArgument(f"{key} would go back from {position} to {end[key]}")
