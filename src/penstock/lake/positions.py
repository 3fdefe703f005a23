"""How far a table of the lake has come in each topic partition, as properties of the table.

    penstock.position.<topic>.<partition> = {"segment_seq": 12, "offset": 3400}
    penstock.writer-epoch                 = 7

They are changed together with the data files that they speak of, in one Iceberg commit, and in no
other way: that is what makes the pipeline exactly-once. Pure: no files, no Iceberg.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from penstock.model.errors import Damaged, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

POSITION_PREFIX: Final = "penstock.position."
WRITER_EPOCH: Final = "penstock.writer-epoch"


class Source(NamedTuple):
    """A topic partition; `topic` is written `/namespace/name`."""

    topic: str
    partition: int


class Position(NamedTuple):
    """Every message below `offset`, of the segments up to `segment_seq`, is in the table.

    Or it was set aside, when it could not be read. The next batch begins at `offset`.
    """

    segment_seq: int
    offset: int


Positions: TypeAlias = "Mapping[Source, Position]"
"""A source that is not in it has not been read at all."""


class HasProperties(Protocol):
    """A table of Iceberg, as far as positions are concerned."""

    @property
    def properties(self) -> dict[str, str]:
        """Its table properties."""
        ...


def read_positions(table: HasProperties) -> dict[Source, Position]:
    """What the table says as it was last loaded; Damaged where it cannot be understood."""
    return decode_positions(table.properties)


def read_epoch(table: HasProperties) -> int:
    """The newest claim on the table as it was last loaded; 0 before the first."""
    text = table.properties.get(WRITER_EPOCH, "0")
    if not _is_number(text):
        raise Damaged(f"{WRITER_EPOCH} is {text!r}, no number")
    return int(text)


def encode_positions(positions: Positions) -> dict[str, str]:
    """As table properties, in the order of their names."""
    return {
        f"{POSITION_PREFIX}{source.topic}.{source.partition}": json.dumps(position._asdict())
        for source, position in sorted(positions.items())
    }


def decode_positions(properties: Mapping[str, str]) -> dict[Source, Position]:
    """Those among the table properties; others are passed over, unknown fields too."""
    return {
        _decode_name(name): _decode_value(name, text)
        for name, text in sorted(properties.items())
        if name.startswith(POSITION_PREFIX)
    }


def check_forward(start: Positions, end: Positions) -> None:
    """InvalidArgument unless `end` names all that `start` does, and nothing goes back."""
    for source, position in start.items():
        if source not in end:
            raise InvalidArgument(f"the end of the batch has no position of {source}")
        if end[source].offset < position.offset or end[source].segment_seq < position.segment_seq:
            raise InvalidArgument(f"{source} would go back from {position} to {end[source]}")


def _decode_name(name: str) -> Source:
    topic, _, partition = name.removeprefix(POSITION_PREFIX).rpartition(".")
    if not topic or not _is_number(partition):
        raise Damaged(f"the property {name!r} names no topic partition")
    return Source(topic, int(partition))


def _decode_value(name: str, text: str) -> Position:
    try:
        document = json.loads(text)
        position = Position(document["segment_seq"], document["offset"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged(f"the property {name!r} is {text[:80]!r}, no position") from None
    if not all(type(number) is int and number >= 0 for number in position):
        raise Damaged(f"the property {name!r} is {text[:80]!r}, no position")
    return position


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
