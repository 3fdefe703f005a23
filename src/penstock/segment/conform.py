"""Fits batches into the representative schema of their slot."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from penstock.segment.nested import child_fields, children, decode, with_children


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of `schema`: reordered, cast, and null where it has none.

    `schema` is a representative one, so that every type in it is as wide as the batch's.
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    if not schema.names:  # a batch without columns still has rows
        return batch.replace_schema_metadata(schema.metadata)
    held = set(batch.schema.names)
    columns = [
        conform_array(batch.column(field.name), field.type)
        if field.name in held
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def conform_array(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The array's values as `type_`, which is at least as wide."""
    if array.type.equals(type_):
        return array
    if types.is_null(array.type):
        return pa.nulls(len(array), type_)
    if types.is_dictionary(array.type):
        return _conform_dictionary(array, type_)
    if types.is_struct(type_):
        return _conform_struct(array, type_)
    if fields := child_fields(type_):
        kids = map(conform_array, children(array), (field.type for field in fields))
        return with_children(array, type_, list(kids))
    return array.cast(type_)


def _conform_dictionary(array: pa.DictionaryArray, type_: pa.DataType) -> pa.Array:
    if not types.is_dictionary(type_):
        return decode(conform_array(array.dictionary, type_), array.indices)
    return pa.DictionaryArray.from_arrays(
        array.indices.cast(type_.index_type),
        conform_array(array.dictionary, type_.value_type),
        ordered=type_.ordered,
        safe=False,
    )


def _conform_struct(array: pa.StructArray, type_: pa.StructType) -> pa.Array:
    held = dict(zip((field.name for field in array.type), children(array), strict=True))
    kids = [
        conform_array(held[field.name], field.type)
        if field.name in held
        else pa.nulls(len(array), field.type)
        for field in type_
    ]
    return with_children(array, type_, kids)
