"""Which batches share a stream, and the one schema that all batches of a slot fit into."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import types

from penstock.segment import widening
from penstock.segment.nested import child_fields

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
