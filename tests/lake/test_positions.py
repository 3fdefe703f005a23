"""Positions as table properties, and back."""

from __future__ import annotations

import pytest

from penstock.lake.positions import (
    VERSION_NAME,
    decode_positions,
    encode_epochs,
    encode_positions,
    read_epochs,
)
from penstock.model.errors import Damaged, InvalidArgument, UnsupportedVersion
from penstock.model.positions import UNKNOWN, Reached, SourcePartition
from tests.lake.helpers import SOURCE, TRACES

NAME = f"penstock.position.{SOURCE}/default/traces.0"


class Properties:
    """A table that has properties and nothing else."""

    def __init__(self, **properties: str) -> None:
        self.properties = {name.replace("_", "-"): value for name, value in properties.items()}


def test_a_person_can_read_a_position() -> None:
    """The property names the partition, its value the fields."""
    encoded = encode_positions({TRACES: Reached(12, 3400)})
    assert encoded == {NAME: '{"segment_seq": 12, "offset": 3400}'}


@pytest.mark.parametrize("topic", ["/default/traces", "/a/checkout.v2", "/café/x.1"])
def test_positions_survive_the_round_trip(topic: str) -> None:
    """A dot in a topic's name is not taken for the one before the partition."""
    positions = {SourcePartition(SOURCE, topic, 7): Reached(0, 0), TRACES: Reached(2**40, 2**60)}
    assert decode_positions(encode_positions(positions)) == positions


def test_other_properties_and_unknown_fields_are_passed_over() -> None:
    """A newer Penstock may add fields to a position."""
    properties = {NAME: '{"segment_seq": 1, "offset": 2, "leader_epoch": 3}', "owner": "me"}
    assert decode_positions(properties) == {TRACES: Reached(1, 2)}


@pytest.mark.parametrize(
    "value", ["", "[]", "null", '{"offset": 2}', '{"segment_seq": 1, "offset": -2}', "[" * 10**5]
)
def test_a_position_that_cannot_be_read_is_damage(value: str) -> None:
    """Taking it for no position would write everything again."""
    with pytest.raises(Damaged, match="no position"):
        decode_positions({NAME: value})


@pytest.mark.parametrize("name", ["0", ".0", "/a/b.", "/a/b.x", "/a/b.-1", "/a/b.²"])
def test_a_property_that_names_no_partition_is_damage(name: str) -> None:
    """Each position is somebody's."""
    with pytest.raises(Damaged, match="names no topic partition"):
        decode_positions({f"penstock.position.{name}": '{"segment_seq": 1, "offset": 2}'})


def test_positions_of_0_1_have_no_source() -> None:
    """They are read as nobody's, and are no damage."""
    properties = {"penstock.position./a/x.v2.3": '{"segment_seq": 1, "offset": 2}'}
    assert decode_positions(properties) == {SourcePartition(UNKNOWN, "/a/x.v2", 3): Reached(1, 2)}
    assert encode_positions(decode_positions(properties)) == properties


def test_sources_have_positions_of_their_own() -> None:
    """Offsets count from 0 in each of them."""
    other = TRACES._replace(source="b")
    positions = {TRACES: Reached(5, 50), other: Reached(0, 1)}
    assert decode_positions(encode_positions(positions)) == positions


@pytest.mark.parametrize("place", [("a/b", "/default/traces", 0), ("a", "traces", 0)])
def test_a_name_that_would_not_come_back_is_refused(place: tuple[str, str, int]) -> None:
    """A slash parts the source from the topic."""
    with pytest.raises(InvalidArgument):
        encode_positions({SourcePartition(*place): Reached(0, 0)})


def test_positions_of_a_later_version_are_refused() -> None:
    """What they mean is not known."""
    assert decode_positions(encode_epochs(["a"], 7)) == {}
    with pytest.raises(UnsupportedVersion, match="version 3"):
        decode_positions({VERSION_NAME: "3"})
    with pytest.raises(Damaged, match="no number"):
        decode_positions({VERSION_NAME: "two"})


def test_each_source_has_an_epoch() -> None:
    """None before its first claim; that of 0.1 was for all of them."""
    assert read_epochs(Properties()) == {}
    table = Properties()
    table.properties |= {**encode_epochs(["a", "b.c"], 17), "penstock.writer-epoch": "3"}
    assert read_epochs(table) == {"a": 17, "b.c": 17, UNKNOWN: 3}


def test_an_epoch_that_is_no_number_is_damage() -> None:
    """Starting again at 1 would bring fenced writers back."""
    table = Properties()
    table.properties["penstock.writer-epoch"] = "seven"
    with pytest.raises(Damaged, match="no number"):
        read_epochs(table)
