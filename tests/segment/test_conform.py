"""Batches fitted into the representative schema."""

from __future__ import annotations

from random import Random

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.segment.schemas import conform, representative
from tests.segment.arrow_samples import NAMES, random_batch, random_type, similar_type
from tests.segment.test_widening import as_wide


def test_columns_are_reordered_cast_and_added() -> None:
    """All three at once."""
    batch = pa.record_batch({"b": pa.array([1, 2], pa.int8()), "a": pa.array(["x", None])})
    schema = pa.schema([("a", pa.large_string()), ("new", pa.date32()), ("b", pa.int64())])
    conformed = conform(batch, schema)
    assert conformed.schema == schema
    assert conformed.to_pydict() == {"a": ["x", None], "new": [None, None], "b": [1, 2]}


def test_a_batch_that_fits_is_passed_through() -> None:
    """It costs nothing."""
    batch = pa.record_batch({"a": pa.array([1])})
    assert conform(batch, batch.schema) is batch


def test_the_metadata_are_those_of_the_schema() -> None:
    """Whatever those of the batch are."""
    batch = pa.record_batch({"a": pa.array([1])}).replace_schema_metadata({"k": "1"})
    schema = pa.schema([pa.field("a", pa.int64(), metadata={"f": "2"})], {"k": "2"})
    assert conform(batch, schema).schema.equals(schema, check_metadata=True)


def test_rows_without_columns_stay_rows() -> None:
    """A batch may have rows and no columns."""
    empty = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert conform(empty, pa.schema([], {"k": "v"})).num_rows == 2
    assert conform(empty, pa.schema([("a", pa.int8())])).to_pydict() == {"a": [None, None]}


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 5))
def test_conformed_batches_hold_what_they_held(seed: int, rows: int) -> None:
    """Random schemas that drift, nested at will."""
    random = Random(seed)
    first = pa.schema([(name, random_type(random, 2)) for name in NAMES[:3]])
    second = pa.schema(
        [(name, similar_type(random, first.field(name).type)) for name in NAMES[1:3]]
        + [("f", random_type(random, 2))]
    )
    union = representative([first, second])
    if union is None:
        return
    for schema in (first, second):
        batch = random_batch(random, schema, rows)
        conformed = conform(batch, union)
        conformed.validate(full=True)
        assert conformed.schema == union
        expected = {**dict.fromkeys(union.names, [None] * rows), **batch.to_pydict()}
        assert as_wide(list(conformed.to_pydict().items())) == as_wide(
            [(name, expected[name]) for name in union.names]
        )
