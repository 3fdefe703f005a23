"""The widest of two types."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.segment.schemas import conform_array
from penstock.segment.widening import widest
from tests.segment.arrow_samples import random_array, random_type, similar_type

SEEDS = st.integers(0, 2**32)
DICTIONARY = pa.dictionary(pa.uint8(), pa.string())

PAIRS = [
    (pa.int8(), pa.int8(), pa.int8()),
    (pa.null(), pa.int8(), pa.int8()),
    (pa.null(), DICTIONARY, DICTIONARY),
    (pa.int8(), pa.int32(), pa.int32()),
    (pa.uint8(), pa.uint64(), pa.uint64()),
    (pa.uint8(), pa.int8(), pa.int16()),
    (pa.uint32(), pa.int8(), pa.int64()),
    (pa.uint16(), pa.int64(), pa.int64()),
    (pa.uint64(), pa.int64(), None),
    (pa.uint64(), pa.int8(), None),
    (pa.float16(), pa.float64(), pa.float64()),
    (pa.int32(), pa.float32(), pa.float64()),
    (pa.uint32(), pa.float64(), pa.float64()),
    (pa.int64(), pa.float64(), None),
    (pa.bool_(), pa.int8(), None),
    (pa.string(), pa.large_string(), pa.large_string()),
    (pa.string(), pa.string_view(), pa.large_string()),
    (pa.binary(), pa.large_binary(), pa.large_binary()),
    (pa.binary(), pa.binary_view(), pa.large_binary()),
    (pa.string(), pa.binary(), pa.binary()),
    (pa.large_string(), pa.binary(), pa.large_binary()),
    (pa.binary(4), pa.binary(8), pa.binary()),
    (pa.binary(4), pa.binary(), pa.binary()),
    (pa.binary(4), pa.string(), pa.binary()),
    (pa.string(), pa.int64(), None),
    (pa.decimal128(10, 2), pa.decimal128(12, 6), pa.decimal128(14, 6)),
    (pa.decimal32(9, 0), pa.decimal32(9, 2), pa.decimal64(11, 2)),
    (pa.decimal128(38, 0), pa.decimal128(38, 10), pa.decimal256(48, 10)),
    (pa.decimal256(76, 0), pa.decimal128(38, 10), None),
    (pa.timestamp("ns"), pa.timestamp("us"), None),
    (pa.timestamp("ns"), pa.timestamp("ns", "UTC"), None),
    (pa.duration("s"), pa.duration("ms"), None),
    (pa.date32(), pa.date64(), None),
    (DICTIONARY, pa.dictionary(pa.uint16(), pa.string()), pa.dictionary(pa.uint16(), pa.string())),
    (
        DICTIONARY,
        pa.dictionary(pa.int8(), pa.large_string()),
        pa.dictionary(pa.int16(), pa.large_string()),
    ),
    (pa.dictionary(pa.uint64(), pa.string()), DICTIONARY, pa.dictionary(pa.uint64(), pa.string())),
    (
        pa.dictionary(pa.uint64(), pa.string()),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int64(), pa.string()),
    ),
    (DICTIONARY, pa.string(), pa.string()),
    (DICTIONARY, pa.binary(), pa.binary()),
    (DICTIONARY, pa.int8(), None),
    (
        pa.dictionary(pa.int8(), pa.struct([("a", pa.int8())])),
        pa.dictionary(pa.int8(), pa.struct([("b", pa.string_view())])),
        None,
    ),
    (pa.list_(pa.int8()), pa.list_(pa.int16()), pa.list_(pa.int16())),
    (pa.list_(pa.int8()), pa.large_list(pa.int16()), pa.large_list(pa.int16())),
    (pa.list_(pa.int8(), 2), pa.list_(pa.int16(), 2), pa.list_(pa.int16(), 2)),
    (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3), None),
    (pa.list_(pa.int8(), 2), pa.list_(pa.int8()), None),
    (pa.list_(pa.int8()), pa.list_(pa.string()), None),
    (pa.map_(pa.string(), pa.int8()), pa.map_(DICTIONARY, pa.int16()), pa.map_("string", "int16")),
    (pa.map_(pa.string(), pa.int8()), pa.map_(pa.int8(), pa.int8()), None),
    (
        pa.struct([("a", pa.int8())]),
        pa.struct([("b", pa.int8())]),
        pa.struct([("a", pa.int8()), ("b", pa.int8())]),
    ),
    (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.string())]), None),
    (pa.struct([("a", pa.int8())]), pa.list_(pa.int8()), None),
    (pa.uuid(), pa.binary(16), None),
]


@pytest.mark.parametrize(("a", "b", "expected"), PAIRS)
def test_the_widest_type_is_the_same_either_way(
    a: pa.DataType, b: pa.DataType, expected: pa.DataType | None
) -> None:
    """Nothing is widened that would lose a value."""
    if expected is not None and pa.types.is_struct(expected):
        assert {field.name for field in widest(b, a)} == {field.name for field in expected}
        assert widest(a, b) == expected
        return
    assert widest(a, b) == widest(b, a) == expected


def test_a_field_that_one_struct_lacks_becomes_nullable() -> None:
    """It will be null there; a field that both have stays as it is."""
    a = pa.struct([pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.int8(), False)])
    union = widest(a, pa.struct([pa.field("a", pa.int8(), nullable=False)]))
    assert [field.nullable for field in union] == [False, True]


def test_a_field_of_nulls_makes_the_widest_field_nullable() -> None:
    """Whatever the field of the other type says."""
    strict = pa.field("a", pa.int8(), nullable=False)
    a, b = pa.struct([strict.with_type(pa.null())]), pa.struct([strict])
    assert widest(a, b)[0].nullable
    assert widest(b, a)[0].nullable


def test_a_struct_with_two_fields_of_one_name_has_no_wider_type() -> None:
    """Nobody could say which is which."""
    twice = pa.struct([pa.field("a", pa.int8()), pa.field("a", pa.int8())])
    assert widest(twice, twice) == twice
    assert widest(twice, pa.struct([pa.field("a", pa.int8())])) is None


def as_wide(value: object) -> object:
    """Text as bytes, as it is where text and bytes met."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):  # fields that only one struct has are None
        return {name: as_wide(field) for name, field in value.items() if field is not None}
    if isinstance(value, list | tuple):
        return [as_wide(element) for element in value]
    return value


@settings(deadline=None)
@given(SEEDS, st.integers(0, 6))
def test_the_widest_type_holds_every_value_of_both(seed: int, rows: int) -> None:
    """Whatever is nested in what."""
    random = Random(seed)
    a = random_type(random)
    b = similar_type(random, a)
    wide = widest(a, b)
    if wide is None:
        return
    for array in (random_array(random, a, rows), random_array(random, b, rows)):
        conformed = conform_array(array, wide)
        conformed.validate(full=True)
        assert conformed.type == wide
        assert as_wide(conformed.to_pylist()) == as_wide(array.to_pylist())


@settings(deadline=None)
@given(SEEDS)
def test_widest_is_the_type_itself_for_equal_types_and_nulls(seed: int) -> None:
    """Nothing is widened without need."""
    type_ = random_type(Random(seed))
    assert widest(type_, type_) == widest(type_, pa.null()) == widest(pa.null(), type_) == type_
