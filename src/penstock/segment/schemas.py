"""Which batches share a stream, the one schema that all batches of a slot fit into, and the fit."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import types

from penstock.segment import widening
from penstock.segment.nested import child_fields, children, decode, with_children

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FINGERPRINT_BYTES: Final = 16
_CACHED_SCHEMAS: Final = 4096


def fingerprint(schema: pa.Schema) -> bytes:
    """Sixteen bytes that are equal for schemas whose batches share a stream.

    The order of columns and the width of dictionary indexes do not count; all else does.
    """
    return _digest(schema.serialize().to_pybytes())


@functools.lru_cache(_CACHED_SCHEMAS)
def _digest(message: bytes) -> bytes:
    schema = pa.ipc.read_schema(pa.py_buffer(message))
    columns = sorted(_describe_field(field) for field in schema)
    description = ascii((columns, _describe_metadata(schema.metadata)))
    return hashlib.blake2b(description.encode(), digest_size=FINGERPRINT_BYTES).digest()


def _describe_field(field: pa.Field) -> tuple[object, ...]:
    metadata = _describe_metadata(field.metadata)
    return field.name, _describe_type(field.type), field.nullable, metadata


def _describe_metadata(metadata: Mapping[bytes, bytes] | None) -> list[tuple[bytes, bytes]]:
    return sorted((metadata or {}).items())


def _describe_type(type_: pa.DataType) -> tuple[object, ...]:
    if types.is_dictionary(type_):
        return "dictionary", type_.ordered, _describe_type(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        settings = getattr(type_, "__arrow_ext_serialize__", bytes)()
        return "extension", str(type_), settings, _describe_type(type_.storage_type)
    if types.is_map(type_):
        return "map", type_.keys_sorted, [_describe_field(field) for field in child_fields(type_)]
    kids = [_describe_field(type_.field(number)) for number in range(type_.num_fields)]
    if types.is_fixed_size_list(type_):
        return "fixed_size_list", type_.list_size, kids
    if types.is_union(type_):
        return type_.mode, type_.type_codes, kids
    return (type(type_).__name__, kids) if kids else (str(type_),)


def representative(schemas: Iterable[pa.Schema]) -> pa.Schema | None:
    """Every column of the schemas with its widest type; None where one has no such type.

    Columns stand in the order in which they appear; one that a schema lacks is nullable.
    """
    schemas = iter(schemas)
    union = next(schemas)
    for schema in schemas:
        fields = widening.union_of_fields(list(union), list(schema))
        if fields is None:
            return None
        union = pa.schema(fields, union.metadata)
    return union


def families(schemas: Iterable[pa.Schema]) -> tuple[list[pa.Schema], list[int]]:
    """Representative schemas, as few as there can be in this order, and which one each fits into.

    One is enough unless a column has types without a widest one. A schema joins the first family
    that it fits into, so that the same schemas in the same order make the same families.
    """
    found: list[pa.Schema] = []
    members: list[int] = []
    for schema in schemas:
        for number, family in enumerate(found):
            union = representative([family, schema])
            if union is not None:
                found[number] = union
                members.append(number)
                break
        else:
            members.append(len(found))
            found.append(schema)
    return found, members


def omitted_columns(schema: pa.Schema, of: pa.Schema) -> tuple[int, ...]:
    """Which columns of the representative schema `of` this one lacks, by number."""
    names = set(schema.names)
    return tuple(number for number, name in enumerate(of.names) if name not in names)


# --- fitting batches into it --------------------------------------------------------------------


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
