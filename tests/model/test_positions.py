"""The coordinate of a message, and how far somebody has come in it."""

from __future__ import annotations

import pytest

from penstock.model.errors import InvalidArgument
from penstock.model.positions import Position, SourcePartition, check_forward, of_sources

TRACES = SourcePartition("a", "/default/traces", 0)


def test_of_sources_leaves_the_others_out() -> None:
    """They are another writer's business."""
    other = TRACES._replace(source="b")
    positions = {TRACES: Position(5, 50), other: Position(0, 1)}
    assert of_sources(positions, {"b", "c"}) == {other: Position(0, 1)}


@pytest.mark.parametrize("end", [{}, {TRACES: Position(5, 49)}, {TRACES: Position(4, 50)}])
def test_positions_never_go_back(end: dict[SourcePartition, Position]) -> None:
    """Nor is one forgotten."""
    with pytest.raises(InvalidArgument):
        check_forward({TRACES: Position(5, 50)}, end)


def test_positions_may_stay_and_new_ones_may_come() -> None:
    """A batch need not have messages of every partition."""
    start = {TRACES: Position(5, 50)}
    check_forward(start, {**start, TRACES._replace(partition=1): Position(0, 3)})
