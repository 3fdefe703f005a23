"""Positions of a stream: as JSON, and how segments move them."""

from __future__ import annotations

import json

import pytest

from penstock.model.errors import InvalidArgument
from penstock.tiers.offsets import (
    Position,
    decode_positions,
    encode_positions,
    parse_positions,
    positions_after,
    positions_before,
)
from tests.pipeline.listing import KEY, OTHER, damaged, segment


def test_offsets_are_what_a_person_would_write() -> None:
    """A partition by its name, and two numbers."""
    written = json.dumps(encode_positions({KEY: Position(42, 1337)}))
    assert written == '{"/default/traces/0": {"segment_seq": 42, "offset": 1337}}'


def test_offsets_do_not_depend_on_the_order_of_partitions() -> None:
    """Spark takes two that are written differently for two places."""
    one, two = Position(1, 10), Position(2, 20)
    there, back = {KEY: one, OTHER: two}, {OTHER: two, KEY: one}
    assert json.dumps(encode_positions(there)) == json.dumps(encode_positions(back))


def test_offsets_come_back() -> None:
    """Through JSON, with where a partition was first read."""
    positions = {KEY: Position(4, 40), OTHER: Position(2, 20, Position(1, 10))}
    assert parse_positions(json.dumps(encode_positions(positions))) == positions


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "[]",
        '{"/default/traces/0": 3}',
        '{"/default/traces/0": {}}',
        '{"/default/traces/0": {"segment_seq": 1}}',
        '{"/default/traces/0": {"segment_seq": -1, "offset": 0}}',
        '{"/default/traces/0": {"segment_seq": 1, "offset": "0"}}',
        '{"/default/traces/0": {"segment_seq": true, "offset": 0}}',
        '{"/default/traces/0": {"segment_seq": 1, "offset": 0, "sequence": 3}}',
        '{"/default/traces/0": {"segment_seq": 1, "offset": 0, "first": 3}}',
        "[" * 10_000,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """With an error that says what is wrong."""
    with pytest.raises(InvalidArgument):
        parse_positions(text)


def test_beginning_is_before_the_first_of_each_partition() -> None:
    """Whatever its number is."""
    listed = [segment(3), segment(4), segment(7, key=OTHER)]
    assert positions_before(listed) == {KEY: Position(3, 30), OTHER: Position(7, 70)}


def test_positions_move_behind_what_was_read() -> None:
    """Partitions of which nothing was read stay where they were."""
    start = {KEY: Position(3, 30), OTHER: Position(7, 70)}
    assert positions_after(start, [segment(3), segment(4)]) == {**start, KEY: Position(5, 50)}


def test_batch_that_first_reads_a_partition_keeps_where_it_began() -> None:
    """Else it could not be repeated when segments have gone since; the next batch forgets it."""
    after = positions_after({}, [segment(3), segment(4)])
    assert after == {KEY: Position(5, 50, Position(3, 30))}
    assert positions_after(after, []) == after
    assert positions_after(after, [segment(5)]) == {KEY: Position(6, 60)}


def test_damaged_segment_is_passed_without_knowing_its_messages() -> None:
    """The number moves and the offset does not."""
    start = {KEY: Position(3, 30)}
    assert positions_after(start, [damaged(3)]) == {KEY: Position(4, 30)}
    assert positions_after({}, [damaged(3)]) == {KEY: Position(4, 0, Position(3, 0))}


def test_decoding_takes_what_spark_gives() -> None:
    """Which has been parsed already."""
    assert decode_positions({KEY: {"segment_seq": 1, "offset": 2}}) == {KEY: Position(1, 2)}
