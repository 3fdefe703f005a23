"""Where the dictionary columns of a schema are, and which of them can be unified.

They are found by path: the number of the column, then the number of the child at each level of
structs, lists and maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyarrow import types

from penstock.segment.nested import can_decode, child_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

Path: TypeAlias = tuple[int, ...]


def dictionary_paths(schema: pa.Schema) -> list[Path]:
    """Where the dictionaries are that can be unified."""
    return [path for number, field in enumerate(schema) for path in _paths(field.type, (number,))]


def _paths(type_: pa.DataType, path: Path) -> Iterator[Path]:
    if types.is_dictionary(type_):
        yield path
    for number, field in enumerate(child_fields(type_)):
        yield from _paths(field.type, (*path, number))


def can_share(schema: pa.Schema) -> bool:
    """Whether all dictionaries can be unified.

    Those within unions, run-ends, list views, extensions and other dictionaries cannot, nor those
    of values that Arrow can neither compare nor decode: such a batch gets a stream of its own.
    """
    return all(_can_share(field.type) for field in schema)


def _can_share(type_: pa.DataType) -> bool:
    if types.is_dictionary(type_):
        return can_decode(type_.value_type) and not holds_dictionary(type_.value_type)
    if fields := child_fields(type_):
        return all(_can_share(field.type) for field in fields)
    return not holds_dictionary(type_)


def holds_dictionary(type_: pa.DataType) -> bool:
    """Whether the type is a dictionary or has one inside, however deep."""
    if types.is_dictionary(type_):
        return True
    if isinstance(type_, pa.BaseExtensionType):
        return holds_dictionary(type_.storage_type)
    return any(holds_dictionary(type_.field(number).type) for number in range(type_.num_fields))


def dictionary_at(batch: pa.RecordBatch, path: Path) -> pa.DictionaryArray:
    """The dictionary array at the path. Its dictionary counts, not its rows."""
    array = batch.column(path[0])
    for number in path[1:]:
        array = _child(array, number)
    return array


def _child(array: pa.Array, number: int) -> pa.Array:
    if types.is_struct(array.type):
        return array.field(number)
    if types.is_map(array.type):
        return array.items if number else array.keys
    return array.values
