"""The coordinate of a message, and how far somebody has come in it."""

from __future__ import annotations

import pytest

from penstock.model.errors import InvalidArgument
from penstock.model.positions import (
    UNKNOWN,
    Position,
    Reached,
    SourcePartition,
    check_forward,
    of_sources,
)

TRACES = SourcePartition("a", "/default/traces", 0)


def test_of_sources_leaves_the_others_out() -> None:
    """They are another writer's business."""
    other = TRACES._replace(source="b")
    positions = {TRACES: Reached(5, 50), other: Reached(0, 1)}
    assert of_sources(positions, {"b", "c"}) == {other: Reached(0, 1)}


@pytest.mark.parametrize("end", [{}, {TRACES: Reached(5, 49)}])
def test_positions_never_go_back(end: dict[SourcePartition, Reached]) -> None:
    """Nor is one forgotten."""
    with pytest.raises(InvalidArgument):
        check_forward({TRACES: Reached(5, 50)}, end)


def test_positions_may_stay_and_new_ones_may_come() -> None:
    """A batch need not have messages of every partition."""
    start = {TRACES: Reached(5, 50)}
    check_forward(start, {**start, TRACES._replace(partition=1): Reached(0, 3)})


@pytest.mark.parametrize("source", ["b26c5b50-1f0e", UNKNOWN])
def test_positions_and_partitions_have_one_text(source: str) -> None:
    """Which is read back; without a source it is what Spark's offsets have."""
    place = TRACES._replace(source=source)
    assert str(place) == f"{source}/default/traces/0"
    assert SourcePartition.parse(str(place)) == place
    assert str(place.at(1337)) == f"{source}/default/traces/0@1337"
    assert Position.parse(str(place.at(1337))) == place.at(1337)


@pytest.mark.parametrize("text", ["", "traces/0@1", "/default/traces@5", "/a/b/0@", "/a/b/0@-1"])
def test_other_texts_are_no_positions(text: str) -> None:
    """Said in one sentence."""
    with pytest.raises(InvalidArgument, match="/default/traces/0"):
        Position.parse(text)


def test_a_position_is_the_next_message() -> None:
    """The last that was done with is the one before it; at the beginning there is none."""
    assert (TRACES.at(5).last, TRACES.at(0).last) == (4, None)
    assert TRACES.at(5).after(2) == TRACES.at(7)
    assert TRACES.at(5).place == TRACES
    assert TRACES.namespace == "default"


def test_positions_are_ordered_by_partition_and_then_by_offset() -> None:
    """However many digits they have."""
    other = TRACES._replace(partition=1)
    assert sorted([other.at(0), TRACES.at(10), TRACES.at(9)])[1] == TRACES.at(10)
