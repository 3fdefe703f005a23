"""Fingerprints and representative schemas."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.segment.schemas import families, fingerprint, omitted_columns, representative
from tests.segment.arrow_samples import random_type

PLAIN = pa.schema([("a", pa.int64()), ("b", pa.string())])


def test_the_order_of_columns_does_not_count() -> None:
    """Batches that differ in nothing else share a stream."""
    assert fingerprint(PLAIN) == fingerprint(pa.schema(list(PLAIN)[::-1]))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda index: pa.dictionary(index, pa.string()),
        lambda index: pa.struct([("x", pa.dictionary(index, pa.string()))]),
        lambda index: pa.list_(pa.dictionary(index, pa.string())),
        lambda index: pa.list_(pa.dictionary(index, pa.string()), 2),
        lambda index: pa.large_list(pa.dictionary(index, pa.string())),
        lambda index: pa.map_(pa.dictionary(index, pa.string()), pa.int8()),
    ],
)
def test_the_width_of_dictionary_indexes_does_not_count(
    wrap: Callable[[pa.DataType], pa.DataType],
) -> None:
    """At any depth: they are widened when the segment is sealed."""
    prints = {fingerprint(pa.schema([("d", wrap(index))])) for index in (pa.int8(), pa.uint32())}
    assert len(prints) == 1


DIFFERENT = [
    PLAIN,
    pa.schema([("a", pa.int64())]),
    pa.schema([("a", pa.int32()), ("b", pa.string())]),
    pa.schema([("a", pa.int64()), ("c", pa.string())]),
    pa.schema([("a", pa.int64()), ("b", pa.dictionary(pa.int8(), pa.string()))]),
    pa.schema([("a", pa.int64()), ("b", pa.dictionary(pa.int8(), pa.string(), True))]),
    pa.schema([("a", pa.int64()), ("b", pa.dictionary(pa.int8(), pa.binary()))]),
    pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())]),
    pa.schema([pa.field("a", pa.int64(), metadata={"k": "v"}), ("b", pa.string())]),
    PLAIN.with_metadata({"k": "v"}),
    PLAIN.with_metadata({"k": "w"}),
    pa.schema([("a", pa.struct([("x", pa.int8()), ("y", pa.int8())]))]),
    pa.schema([("a", pa.struct([("y", pa.int8()), ("x", pa.int8())]))]),
    pa.schema([("a", pa.list_(pa.int8()))]),
    pa.schema([("a", pa.list_(pa.field("element", pa.int8())))]),
    pa.schema([("a", pa.list_(pa.field("item", pa.int8(), metadata={"k": "v"})))]),
    pa.schema([("a", pa.large_list(pa.int8()))]),
    pa.schema([("a", pa.list_view(pa.int8()))]),
    pa.schema([("a", pa.list_(pa.int8(), 2))]),
    pa.schema([("a", pa.list_(pa.int8(), 3))]),
    pa.schema([("a", pa.map_(pa.string(), pa.int8()))]),
    pa.schema([("a", pa.map_(pa.string(), pa.int8(), keys_sorted=True))]),
    pa.schema([("a", pa.timestamp("ns"))]),
    pa.schema([("a", pa.timestamp("ns", "UTC"))]),
    pa.schema([("a", pa.binary(16))]),
    pa.schema([("a", pa.uuid())]),
    pa.schema([("a", pa.dense_union([pa.field("x", pa.int8())]))]),
    pa.schema([("a", pa.sparse_union([pa.field("x", pa.int8())]))]),
    pa.schema([("a", pa.dense_union([pa.field("x", pa.int8())], type_codes=[5]))]),
    pa.schema([("a", pa.run_end_encoded(pa.int16(), pa.int8()))]),
    pa.schema([]),
]


def test_everything_else_counts() -> None:
    """Types, names, nullability, metadata and the order of struct fields."""
    prints = {fingerprint(schema) for schema in DIFFERENT}
    assert len(prints) == len(DIFFERENT)


def test_fingerprints_are_as_released() -> None:
    """They are stored, so that segments of different versions can be compared."""
    schema = pa.schema(
        [
            pa.field("time", pa.timestamp("ns", "UTC"), nullable=False, metadata={"unit": "ns"}),
            ("attributes", pa.map_(pa.string(), pa.dictionary(pa.uint8(), pa.string()))),
            ("résumé", pa.list_(pa.struct([("x", pa.decimal128(10, 2))]))),
        ]
    )
    assert fingerprint(schema).hex() == "61dac5d962d7e68731246a754830f5af"


def test_the_representative_schema_has_every_column_in_order_of_appearance() -> None:
    """Columns that a schema lacks become nullable, the others keep their nullability."""
    first = pa.schema([pa.field("a", pa.int8(), False), pa.field("b", pa.int8(), False)])
    second = pa.schema([pa.field("c", pa.string(), False), pa.field("a", pa.int32(), False)])
    assert representative([first, second]) == pa.schema(
        [pa.field("a", pa.int32(), False), ("b", pa.int8()), ("c", pa.string())]
    )


def test_metadata_come_from_the_first_schema_that_has_the_column() -> None:
    """So that they do not depend on what arrives later."""
    first = pa.schema([pa.field("a", pa.int8(), metadata={"k": "1"})], {"s": "1"})
    second = pa.schema([pa.field("a", pa.int16(), metadata={"k": "2"})], {"s": "2"})
    union = representative([first, second])
    assert union is not None
    assert (union.metadata, union.field("a").metadata) == ({b"s": b"1"}, {b"k": b"1"})


def test_schemas_without_a_common_type_have_no_representative() -> None:
    """They are families of their own."""
    other = pa.schema([("a", pa.string())])
    assert representative([PLAIN, other]) is None
    assert families([PLAIN, other, PLAIN, other]) == ([PLAIN, other], [0, 1, 0, 1])


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_each_schema_fits_into_its_family(seed: int) -> None:
    """And every family is needed: no two of them have a representative."""
    random = Random(seed)
    schemas = [pa.schema([("a", random_type(random, 1))]) for _ in range(6)]
    found, members = families(schemas)
    for schema, member in zip(schemas, members, strict=True):
        assert representative([found[member], schema]) == found[member]
    assert sorted(set(members)) == list(range(len(found)))


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_a_schema_represents_itself(seed: int) -> None:
    """However often it comes."""
    random = Random(seed)
    schema = pa.schema([(name, random_type(random)) for name in "abc"])
    assert representative([schema, schema, schema]) == schema


def test_omitted_columns_are_those_of_the_representative_schema() -> None:
    """By their number there."""
    assert omitted_columns(pa.schema([("b", pa.int8())]), PLAIN) == (0,)
    assert omitted_columns(PLAIN, PLAIN) == ()
