"""Hashes of rows: equal for equal ones however Arrow has them, and for no others."""

from __future__ import annotations

import datetime as dt
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lake.hashing import hash_array, hash_columns
from penstock.lake.schemas import EVENT, STRINGS, list_of

if TYPE_CHECKING:
    from penstock.lake.hashing import Hashes

_TEXT = st.one_of(
    st.text(max_size=5), st.text("0123456789abcdef", min_size=16, max_size=16), st.just("a" * 32)
)
_NUMBER = st.integers(-(2**63), 2**63 - 1)
_MAP = st.dictionaries(_TEXT, st.none() | _TEXT, max_size=4).map(lambda found: [*found.items()])
_EVENT = st.fixed_dictionaries(
    {
        "time_unix_nano": st.none() | _NUMBER,
        "name": st.none() | _TEXT,
        "attributes": st.none() | _MAP,
        "attribute_types": st.none() | _MAP,
        "dropped_attributes_count": st.none() | _NUMBER,
    }
)
_TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), _TEXT),
    "bytes": (pa.binary(), st.binary(max_size=5) | st.just(b"x" * 16)),
    "number": (pa.int64(), _NUMBER),
    "small number": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "truth": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates()),
    "time": (
        pa.timestamp("us", "UTC"),
        st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2500, 1, 1)).map(
            lambda found: found.replace(tzinfo=dt.UTC)
        ),
    ),
    "map": (STRINGS, _MAP),
    "list": (list_of(pa.int64()), st.lists(st.none() | _NUMBER, max_size=4)),
    "lists": (
        list_of(list_of(pa.string())),
        st.lists(st.none() | st.lists(st.none() | _TEXT, max_size=3), max_size=3),
    ),
    "events": (list_of(EVENT), st.lists(st.none() | _EVENT, max_size=3)),
}


def distinct(value: Any) -> Any:
    """Something that is equal for what must have equal hashes, and no other."""
    match value:
        case dict():
            return "struct", *((name, distinct(each)) for name, each in value.items())
        case [*items] if items and isinstance(items[0], tuple):
            return "map", frozenset(items)
        case [*items]:
            return "list", *map(distinct, items)
        case float():
            return struct.pack("<d", value)
        case _:
            return value


def two_numbers(hashes: Hashes) -> list[tuple[int, int]]:
    """As values that Python compares."""
    return [(int(first), int(second)) for first, second in hashes]


@pytest.mark.parametrize("kind", _TYPES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_hashes_are_equal_for_equal_values_alone(kind: str, data: st.DataObject) -> None:
    """Of every type that the tables have, nulls among them."""
    type_, values = _TYPES[kind]
    found = data.draw(st.lists(st.none() | values, max_size=8))
    hashes = two_numbers(hash_array(pa.array(found, type_)))
    by_value: dict[Any, set[tuple[int, int]]] = {}
    for value, each in zip(found, hashes, strict=True):
        by_value.setdefault(distinct(value), set()).add(each)
    assert all(len(each) == 1 for each in by_value.values())
    assert len(set().union(*by_value.values())) == len(by_value)


@pytest.mark.parametrize("kind", _TYPES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_hash_does_not_depend_on_the_array(kind: str, data: st.DataObject) -> None:
    """A slice, a filtered array and each value alone have the same."""
    type_, values = _TYPES[kind]
    found = data.draw(st.lists(st.none() | values, min_size=1, max_size=8))
    array = pa.array(found, type_)
    whole = two_numbers(hash_array(array))
    begin = data.draw(st.integers(0, len(found)))
    end = data.draw(st.integers(begin, len(found)))
    assert two_numbers(hash_array(array.slice(begin, end - begin))) == whole[begin:end]
    chosen = data.draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found)))
    kept = [each for each, wanted in zip(whole, chosen, strict=True) if wanted]
    assert two_numbers(hash_array(array.filter(pa.array(chosen)))) == kept
    alone = [two_numbers(hash_array(pa.array([each], type_)))[0] for each in found]
    assert alone == whole


@settings(max_examples=50, deadline=None)
@given(st.lists(st.none() | _TEXT, max_size=12), st.integers(0, 12))
def test_dictionaries_are_their_values(texts: list[str | None], begin: int) -> None:
    """With nulls in the indexes, and sliced."""
    array = pa.array(texts, pa.string())
    encoded = array.dictionary_encode()
    assert two_numbers(hash_array(encoded)) == two_numbers(hash_array(array))
    assert two_numbers(hash_array(encoded[begin:])) == two_numbers(hash_array(array[begin:]))


def test_null_within_a_dictionary_is_null() -> None:
    """Wherever the null is."""
    encoded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    first, second, third = two_numbers(hash_array(encoded))
    assert first != second == third


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.string(), [None, "", "0", "null"]),
        (pa.int64(), [None, 0, -1, 1, 2**32, -(2**63)]),
        (pa.float64(), [None, 0.0, -0.0, 1.0, float("inf"), float("nan")]),
        (pa.bool_(), [None, False, True]),
        (list_of(pa.int64()), [None, [], [None], [0], [0, 0], [None, 0], [0, None]]),
        (STRINGS, [None, [], [("", "")], [("", None)], [("a", "b")], [("b", "a")]]),
        (list_of(list_of(pa.int64())), [None, [], [None], [[]], [[], []], [[1], [2]], [[1, 2]]]),
    ],
)
def test_null_empty_and_zero_differ(type_: pa.DataType, values: list[Any]) -> None:
    """They are not the same thing to whoever sent them."""
    assert len(set(two_numbers(hash_array(pa.array(values, type_))))) == len(values)


def test_order_matters_in_lists_and_not_in_maps() -> None:
    """Attributes have no order; buckets and events have."""
    forward, back = [("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")]
    one, other = hash_array(pa.array([forward, back], STRINGS))
    assert (one == other).all()
    one, other = hash_array(pa.array([[1, 2], [2, 1]], list_of(pa.int64())))
    assert (one != other).any()


def test_values_do_not_move_between_keys() -> None:
    """{a: 1, b: 2} and {a: 2, b: 1} have the same keys and the same values."""
    one = [("a", "1"), ("b", "2")]
    other = [("a", "2"), ("b", "1")]
    first, second = hash_array(pa.array([one, other], STRINGS))
    assert (first != second).any()


def test_columns_are_not_interchangeable() -> None:
    """A value in one column is not the same value in the next."""
    some, none = pa.array(["x"]), pa.array([None], pa.string())
    one, other = hash_columns([some, none]), hash_columns([none, some])
    assert (one != other).any()


def test_what_is_below_a_null_does_not_matter() -> None:
    """Arrow keeps values under a null struct or list, which nobody can see."""
    mask = pa.array([True, True])
    hidden = pa.StructArray.from_arrays([pa.array([1, 2])], names=["a"], mask=mask)
    first, second = hash_array(hidden)
    assert (first == second).all()
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), pa.array([1, 2]), mask=mask)
    first, second = hash_array(lists)
    assert (first == second).all()


def test_hashes_of_many_rows_have_both_numbers_apart() -> None:
    """Each of the two numbers alone tells a hundred thousand rows from each other."""
    numbers = pa.array(np.arange(100_000))
    ids = pa.array([f"{number:016x}" for number in range(100_000)])
    for hashes in (hash_array(numbers), hash_array(ids), hash_columns([ids, numbers])):
        assert len(np.unique(hashes[:, 0])) == len(np.unique(hashes[:, 1])) == 100_000


def test_no_rows_have_no_hashes() -> None:
    """Also of nested types, whose buffers may be missing."""
    for type_, _ in _TYPES.values():
        assert hash_array(pa.array([], type_)).shape == (0, 2)
