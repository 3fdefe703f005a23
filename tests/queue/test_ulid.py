"""ULIDs sort by time, and never go back."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidArgument
from penstock.queue.ulid import (
    HIGHEST,
    LOWEST,
    UlidSource,
    lowest_ulid_at,
    parse_ulid,
    ulid_ms,
    ulid_text,
)
from tests.queue.helpers import START_MS, Time

ulids = st.binary(min_size=16, max_size=16)


def test_text_is_that_of_the_specification() -> None:
    """The example in the specification of ULIDs, and the two ends."""
    assert ulid_text((1_469_918_176_385 << 80).to_bytes(16, "big"))[:10] == "01ARYZ6S41"
    assert ulid_text(LOWEST) == "0" * 26
    assert ulid_text(HIGHEST) == "7" + "Z" * 25


@given(ulids, ulids)
def test_text_sorts_as_the_bytes_do(one: bytes, other: bytes) -> None:
    """So that lists of keys come in the order of time."""
    assert (one < other) == (ulid_text(one) < ulid_text(other))
    assert parse_ulid(ulid_text(one)) == one


@pytest.mark.parametrize("text", ["", "0" * 25, "8" + "0" * 25, "i" * 26, "0" * 25 + "U", "é" * 26])
def test_other_text_is_no_ulid(text: str) -> None:
    """Wrong length, too large, or a letter that is not a digit."""
    assert parse_ulid(text) is None


def test_time_is_in_the_name() -> None:
    """In milliseconds."""
    name = UlidSource(Time(), random.Random(1)).next()
    assert ulid_ms(name) == START_MS
    assert lowest_ulid_at(START_MS) <= name < lowest_ulid_at(START_MS + 1)


def test_names_grow_also_when_the_clock_steps_back() -> None:
    """By an hour, by a century, and within one millisecond."""
    time = Time()
    source = UlidSource(time, random.Random(1))
    names = []
    for step_s in (0.0, 0.0, -3600.0, 0.001, -3e9, 7200.0, 0.0):
        time.wall_s += step_s
        names += [source.next() for _ in range(3)]
    assert all(one < other for one, other in pairwise(names))


@given(ulids.filter(lambda ulid: ulid < HIGHEST[:1] + bytes(15)))
def test_name_is_not_below_the_bound(bound: bytes) -> None:
    """However far ahead the clock is that set it."""
    source = UlidSource(Time(), random.Random(1))
    first = source.next(bound)
    assert first >= bound
    assert source.next() > first


def test_two_sources_above_one_bound_differ() -> None:
    """A bound in the future leaves them only chance to differ by."""
    bound = lowest_ulid_at(START_MS + 10**9)
    sources = [UlidSource(Time(), random.Random(seed)) for seed in (1, 2)]
    assert sources[0].next(bound) != sources[1].next(bound)


def test_end_of_all_names_is_an_error() -> None:
    """Rather than a name that sorts first."""
    source = UlidSource(Time(), random.Random(1))
    with pytest.raises(InvalidArgument, match="year 10889"):
        source.next(HIGHEST)
