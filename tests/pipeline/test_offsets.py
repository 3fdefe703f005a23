"""Positions of a stream: as JSON, and how segments move them."""

from __future__ import annotations

import json

import pytest

from penstock.model.errors import InvalidArgument
from penstock.model.positions import Reached
from penstock.pipeline.offsets import (
    decode_offsets,
    encode_offsets,
    ends_after,
    ends_before,
    offsets_of,
    parse_offsets,
)
from tests.pipeline.listing import KEY, OTHER, at, damaged, segment


def test_offsets_are_what_a_person_would_write() -> None:
    """A partition by its name, and two numbers."""
    written = json.dumps(encode_offsets({KEY: at(42, 1337)}))
    assert written == '{"/default/traces/0": {"segment_seq": 42, "offset": 1337}}'


def test_offsets_do_not_depend_on_the_order_of_partitions() -> None:
    """Spark takes two that are written differently for two places."""
    one, two = at(1, 10), at(2, 20)
    there, back = {KEY: one, OTHER: two}, {OTHER: two, KEY: one}
    assert json.dumps(encode_offsets(there)) == json.dumps(encode_offsets(back))


def test_offsets_come_back() -> None:
    """Through JSON, with where a partition was first read."""
    positions = {KEY: at(4, 40), OTHER: at(2, 20, at(1, 10))}
    assert parse_offsets(json.dumps(encode_offsets(positions))) == positions


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
        parse_offsets(text)


def test_beginning_is_before_the_first_of_each_partition() -> None:
    """Whatever its number is."""
    listed = [segment(3), segment(4), segment(7, key=OTHER)]
    assert ends_before(listed) == {KEY: at(3, 30), OTHER: at(7, 70)}


def test_positions_move_behind_what_was_read() -> None:
    """Partitions of which nothing was read stay where they were."""
    start = {KEY: at(3, 30), OTHER: at(7, 70)}
    assert ends_after(start, [segment(3), segment(4)]) == {**start, KEY: at(5, 50)}


def test_batch_that_first_reads_a_partition_keeps_where_it_began() -> None:
    """Else it could not be repeated when segments have gone since; the next batch forgets it."""
    after = ends_after({}, [segment(3), segment(4)])
    assert after == {KEY: at(5, 50, at(3, 30))}
    assert ends_after(after, []) == after
    assert ends_after(after, [segment(5)]) == {KEY: at(6, 60)}


def test_damaged_segment_is_passed_without_knowing_its_messages() -> None:
    """The number moves and the offset does not."""
    start = {KEY: at(3, 30)}
    assert ends_after(start, [damaged(3)]) == {KEY: at(4, 30)}
    assert ends_after({}, [damaged(3)]) == {KEY: at(4, 0, at(3, 0))}


def test_decoding_takes_what_spark_gives() -> None:
    """Which has been parsed already."""
    assert decode_offsets({str(KEY): {"segment_seq": 1, "offset": 2}}) == {KEY: at(1, 2)}


def test_stream_goes_on_behind_what_the_lake_has() -> None:
    """The lake says what it has had last, and Spark's offsets what is next."""
    lake = {KEY._replace(source="here"): Reached(41, 1337, 5_000)}
    assert parse_offsets(offsets_of(lake)) == {KEY: at(42, 1337)}
