"""Rows of a file with the columns that its table has now, found by their numbers.

A column that the file does not have is null; a type that has become wider is cast. A file without
numbers, which another engine brought along, is read by names. Pure: no files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.columns import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def matching(held: Iterable[pa.Field], wanted: Iterable[pa.Field]) -> list[pa.Field | None]:
    """For each column that is wanted, the one that the file has for it; None: it has none."""
    numbered = {number_of(field): field for field in held}
    if numbered.keys() <= {None}:
        named = {field.name: field for field in held}
        return [named.get(field.name) for field in wanted]
    return [
        None if (number := number_of(field)) is None else numbered.get(number) for field in wanted
    ]


def projected(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The columns that are wanted, of those that the batch has."""
    found = matching(batch.schema, wanted)
    arrays = [
        pa.nulls(batch.num_rows, field.type)
        if held is None
        else _fitted(batch.column(batch.schema.get_field_index(held.name)), held, field)
        for held, field in zip(found, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def is_same(held: pa.Field, wanted: pa.Field) -> bool:
    """Whether the stored column is as it is wanted, but for its own name."""
    return held.type.equals(wanted.type) and _agree(held, wanted)


def _agree(held: pa.Field, wanted: pa.Field) -> bool:
    """Whether the numbers inside of two columns of the same type are the same, or not known."""
    pairs = zip(_inside(held.type), _inside(wanted.type), strict=True)
    return all(
        number_of(one) in (None, number_of(other)) and _agree(one, other) for one, other in pairs
    )


def _inside(type_: pa.DataType) -> Iterator[pa.Field]:
    if pa.types.is_struct(type_):
        yield from type_
    elif pa.types.is_map(type_):
        yield from (type_.key_field, type_.item_field)
    elif pa.types.is_list(type_):
        yield type_.value_field


def _fitted(array: pa.Array, held: pa.Field, wanted: pa.Field) -> pa.Array:
    if is_same(held, wanted):
        return array
    if pa.types.is_struct(wanted.type) and pa.types.is_struct(held.type):
        return _fitted_struct(array, wanted)
    if pa.types.is_map(wanted.type) and pa.types.is_map(held.type):
        whole = _from_zero(array)
        keys = _fitted(whole.keys, held.type.key_field, wanted.type.key_field)
        items = _fitted(whole.items, held.type.item_field, wanted.type.item_field)
        return pa.MapArray.from_arrays(whole.offsets, keys, items, wanted.type, mask=_nulls(whole))
    if pa.types.is_list(wanted.type) and pa.types.is_list(held.type):
        whole = _from_zero(array)
        values = _fitted(whole.values, held.type.value_field, wanted.type.value_field)
        return pa.ListArray.from_arrays(whole.offsets, values, wanted.type, mask=_nulls(whole))
    return array.cast(wanted.type)


def _fitted_struct(array: pa.StructArray, wanted: pa.Field) -> pa.StructArray:
    held = list(array.type)
    children = [
        pa.nulls(len(array), field.type)
        if one is None
        else _fitted(array.field(held.index(one)), one, field)
        for one, field in zip(matching(held, wanted.type), wanted.type, strict=True)
    ]
    fields = list(wanted.type)
    return pa.StructArray.from_arrays(children, fields=fields, mask=_nulls(array))


def _nulls(array: pa.Array) -> pa.BooleanArray | None:
    return pc.is_null(array) if array.null_count else None


def _from_zero(array: pa.Array) -> pa.Array:
    """The same, beginning with the first value of its buffers: Arrow wants that of lists."""
    return array if array.offset == 0 else array.take(pa.array(np.arange(len(array))))
