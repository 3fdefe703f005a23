"""Takes nested arrays apart and puts them together again with other children.

Slices are respected: the children of a part of an array are the parts that belong to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Sequence


def child_fields(type_: pa.DataType) -> list[pa.Field]:
    """The children that `children` returns; none for types that it does not take apart."""
    if types.is_struct(type_):
        return list(type_)
    if types.is_map(type_):
        return [type_.key_field, type_.item_field]
    if is_list(type_):
        return [type_.value_field]
    return []


def is_list(type_: pa.DataType) -> bool:
    """Whether it is one of the lists that are taken apart."""
    if types.is_fixed_size_list(type_):
        return bool(type_.list_size > 0)  # Arrow divides by the size
    return bool(types.is_list(type_) or types.is_large_list(type_))


def with_fields(type_: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """The same kind of type with other children."""
    if types.is_struct(type_):
        return pa.struct(fields)
    if types.is_map(type_):
        return pa.map_(*fields, keys_sorted=type_.keys_sorted)
    if types.is_fixed_size_list(type_):
        return pa.list_(fields[0], type_.list_size)
    return pa.large_list(fields[0]) if types.is_large_list(type_) else pa.list_(fields[0])


def children(array: pa.Array) -> list[pa.Array]:
    """The children, cut to what the array uses of them."""
    if types.is_struct(array.type):
        return [array.field(number) for number in range(array.type.num_fields)]
    if types.is_fixed_size_list(array.type):
        size = array.type.list_size
        return [array.values.slice(array.offset * size, len(array) * size)]
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    whole = [array.keys, array.items] if types.is_map(array.type) else [array.values]
    return [child.slice(first, last - first) for child in whole]


def with_children(array: pa.Array, type_: pa.DataType, kids: Sequence[pa.Array]) -> pa.Array:
    """An array of `type_` with these children and the array's own lengths and nulls."""
    mask = array.is_null() if array.null_count else None
    if types.is_struct(type_):
        return pa.StructArray.from_arrays(kids, fields=list(type_), mask=mask)
    if types.is_fixed_size_list(type_):
        return pa.FixedSizeListArray.from_arrays(kids[0], type=type_, mask=mask)
    offsets = pc.subtract(array.offsets, array.offsets[0])
    if types.is_map(type_):
        return pa.MapArray.from_arrays(offsets, *kids, type=type_, mask=mask)
    if types.is_large_list(type_):
        offsets = offsets.cast(pa.int64())
        return pa.LargeListArray.from_arrays(offsets, kids[0], type=type_, mask=mask)
    return pa.ListArray.from_arrays(offsets, kids[0], type=type_, mask=mask)


# --- dictionaries ------------------------------------------------------------------------------


def decode(values: pa.Array, indexes: pa.Array) -> pa.Array:
    """The values at the indexes; of views too, which Arrow does not take."""
    if types.is_string_view(values.type):
        return values.cast(pa.large_string()).take(indexes).cast(values.type)
    if types.is_binary_view(values.type):
        return values.cast(pa.large_binary()).take(indexes).cast(values.type)
    return values.take(indexes)


def can_decode(values: pa.DataType) -> bool:
    """Whether Arrow can store a dictionary of such values without the dictionary."""
    try:
        decode(pa.nulls(0, values), pa.array([], pa.int8()))
    except pa.ArrowNotImplementedError:
        return False
    return True
