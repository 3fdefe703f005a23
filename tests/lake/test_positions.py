"""Positions as table properties, and back."""

from __future__ import annotations

import pytest

from penstock.lake.positions import (
    Position,
    Source,
    check_forward,
    decode_positions,
    encode_positions,
    read_epoch,
)
from penstock.model.errors import Damaged, InvalidArgument

TRACES = Source("/default/traces", 0)
NAME = "penstock.position./default/traces.0"


class Properties:
    """A table that has properties and nothing else."""

    def __init__(self, **properties: str) -> None:
        self.properties = {name.replace("_", "-"): value for name, value in properties.items()}


def test_a_person_can_read_a_position() -> None:
    """The property names the partition, its value the fields."""
    encoded = encode_positions({TRACES: Position(12, 3400)})
    assert encoded == {NAME: '{"segment_seq": 12, "offset": 3400}'}


@pytest.mark.parametrize("topic", ["/default/traces", "/a/checkout.v2", "/café/x.1"])
def test_positions_survive_the_round_trip(topic: str) -> None:
    """A dot in a topic's name is not taken for the one before the partition."""
    positions = {Source(topic, 7): Position(0, 0), TRACES: Position(2**40, 2**60)}
    assert decode_positions(encode_positions(positions)) == positions


def test_other_properties_and_unknown_fields_are_passed_over() -> None:
    """A newer Penstock may add fields to a position."""
    properties = {NAME: '{"segment_seq": 1, "offset": 2, "leader_epoch": 3}', "owner": "me"}
    assert decode_positions(properties) == {TRACES: Position(1, 2)}


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


def test_the_epoch_is_zero_before_the_first_claim() -> None:
    """And a number afterwards."""
    assert read_epoch(Properties()) == 0
    table = Properties()
    table.properties["penstock.writer-epoch"] = "17"
    assert read_epoch(table) == 17


def test_an_epoch_that_is_no_number_is_damage() -> None:
    """Starting again at 1 would bring fenced writers back."""
    table = Properties()
    table.properties["penstock.writer-epoch"] = "seven"
    with pytest.raises(Damaged, match="no number"):
        read_epoch(table)


@pytest.mark.parametrize("end", [{}, {TRACES: Position(5, 49)}, {TRACES: Position(4, 50)}])
def test_positions_never_go_back(end: dict[Source, Position]) -> None:
    """Nor is one forgotten."""
    with pytest.raises(InvalidArgument):
        check_forward({TRACES: Position(5, 50)}, end)


def test_positions_may_stay_and_new_ones_may_come() -> None:
    """A batch need not have messages of every partition."""
    start = {TRACES: Position(5, 50)}
    check_forward(start, {**start, Source("/default/traces", 1): Position(0, 3)})
