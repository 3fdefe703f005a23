"""How far a table of the lake has come in each partition of each source, as its properties.

    penstock.position.<source><topic>.<partition> = {"segment_seq": 12, "offset": 3400, …}
    penstock.position.version                     = 2
    penstock.writer-epoch.<source>                = 7

They are changed together with the data files that they speak of, in one Iceberg commit, and in no
other way: that is what makes the pipeline exactly-once. Each source has a writer of its own, which
fences the source's earlier ones and nobody else. Pure: no files, no Iceberg.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.model.errors import Damaged, InvalidArgument, UnsupportedVersion
from penstock.model.positions import UNKNOWN, Reached, Seal, SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.model.positions import Positions

POSITION_PREFIX: Final = "penstock.position."
WRITER_EPOCH: Final = "penstock.writer-epoch"
"""Alone: that of 0.1, whose writers were for all sources."""
VERSION_NAME: Final = f"{POSITION_PREFIX}version"
"""No name of a partition, so that 0.1 takes the table for damaged. It would find none of its
positions here, and write all that it has a second time."""
VERSION: Final = 2


class HasProperties(Protocol):
    """A table of Iceberg, as far as positions are concerned."""

    @property
    def properties(self) -> dict[str, str]:
        """Its table properties."""
        ...


def read_positions(table: HasProperties) -> dict[SourcePartition, Reached]:
    """What the table says as it was last loaded; Damaged where it cannot be understood."""
    return decode_positions(table.properties)


def read_epochs(table: HasProperties) -> dict[str, int]:
    """The newest claim of each source on the table as it was last loaded."""
    return decode_epochs(table.properties)


def position_name(key: SourcePartition) -> str:
    """The property of a partition. A source has no slash, and a topic begins with one."""
    if "/" in key.source or not key.topic.startswith("/"):
        raise InvalidArgument(f"{key} has no place among table properties")
    return f"{POSITION_PREFIX}{key.source}{key.topic}.{key.partition}"


def encode_positions(positions: Positions) -> dict[str, str]:
    """As table properties, in the order of their names."""
    return {
        position_name(key): json.dumps(_fields(position))
        for key, position in sorted(positions.items())
    }


def decode_positions(properties: Mapping[str, str]) -> dict[SourcePartition, Reached]:
    """Those among the table properties; others are passed over, unknown fields too."""
    _check_version(properties)
    return {
        _decode_name(name): _decode_value(name, text)
        for name, text in sorted(properties.items())
        if name.startswith(POSITION_PREFIX) and name != VERSION_NAME
    }


def encode_epochs(sources: Iterable[str], epoch: int) -> dict[str, str]:
    """A claim of these sources, which says of which version the positions are."""
    return {_epoch_name(source): str(epoch) for source in sources} | {VERSION_NAME: str(VERSION)}


def decode_epochs(properties: Mapping[str, str]) -> dict[str, int]:
    """The claims among the table properties, by source."""
    found = {}
    for name, text in properties.items():
        prefix, _, source = name.partition(f"{WRITER_EPOCH}.")
        if name == WRITER_EPOCH or (source and not prefix):
            if not _is_number(text):
                raise Damaged(f"{name} is {text!r}, no number")
            found[source] = int(text)
    return found


def _epoch_name(source: str) -> str:
    return WRITER_EPOCH if source == UNKNOWN else f"{WRITER_EPOCH}.{source}"


def _check_version(properties: Mapping[str, str]) -> None:
    text = properties.get(VERSION_NAME, "1")
    if not _is_number(text):
        raise Damaged(f"{VERSION_NAME} is {text!r}, no number")
    if int(text) > VERSION:
        raise UnsupportedVersion(f"the lake's positions have version {text}, this is {VERSION}")


def _decode_name(name: str) -> SourcePartition:
    place, _, partition = name.removeprefix(POSITION_PREFIX).rpartition(".")
    source, slash, topic = place.partition("/")
    if not slash or not _is_number(partition):
        raise Damaged(f"the property {name!r} names no topic partition")
    return SourcePartition(source, f"/{topic}", int(partition))


def _decode_value(name: str, text: str) -> Reached:
    try:
        document = json.loads(text)
        position = Reached(
            document["segment_seq"],
            document["offset"],
            document.get("sealed_at_ns"),
            tuple(Seal(*each) for each in document.get("seals", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged(f"the property {name!r} is {text[:80]!r}, no position") from None
    numbers = [*position[:2], *(number for seal in position.seals for number in seal)]
    numbers += [] if position.sealed_at_ns is None else [position.sealed_at_ns]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise Damaged(f"the property {name!r} is {text[:80]!r}, no position")
    return position


def _fields(position: Reached) -> dict[str, Any]:
    fields = position._asdict().items()
    return {name: value for name, value in fields if value is not None and value != ()}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
