"""Nested arrays, taken apart and put together."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.segment.nested import child_fields, children, with_children, with_fields
from tests.segment.arrow_samples import random_array, random_type

SEEDS = st.integers(0, 2**32)


@settings(deadline=None)
@given(SEEDS, st.integers(0, 5))
def test_an_array_is_its_children_put_together(seed: int, rows: int) -> None:
    """Slices, nulls with children and empty arrays included."""
    random = Random(seed)
    array = random_array(random, random_type(random), rows)
    fields = child_fields(array.type)
    if not fields:
        return
    kids = children(array)
    assert with_fields(array.type, fields) == array.type
    again = with_children(array, array.type, kids)
    again.validate(full=True)
    assert again.to_pylist() == array.to_pylist()
    assert [kid.type for kid in kids] == [field.type for field in fields]


def test_children_of_a_slice_are_cut_to_it() -> None:
    """A small part of a large list costs little."""
    array = pa.array([[n, n] for n in range(1000)]).slice(500, 2)
    assert children(array)[0].to_pylist() == [500, 500, 501, 501]


@pytest.mark.parametrize(
    "type_", [pa.int8(), pa.string(), pa.list_(pa.int8(), 0), pa.list_view(pa.int8()), pa.uuid()]
)
def test_other_types_have_no_children_here(type_: pa.DataType) -> None:
    """Lists of size 0 included, which Arrow cannot put together."""
    assert child_fields(type_) == []
