"""Between the Arrow schemas that rows have and the Iceberg schemas that tables have.

Iceberg knows a column by its number, not by its name. The numbers are written into each Parquet
file, so that renamed and re-added columns are told apart by every reader.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from penstock.model.errors import InvalidArgument, NotHonoured

if TYPE_CHECKING:
    from collections.abc import Mapping

_SMALL: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


@lru_cache(maxsize=16)
def schema_of(schema_json: str) -> Schema:
    """The Iceberg schema that `Schema.model_dump_json` wrote."""
    return Schema.model_validate_json(schema_json)


@lru_cache(maxsize=16)
def arrow_schema(schema_json: str) -> pa.Schema:
    """The columns as Arrow has them, each with its number; 32-bit offsets, as rows have them."""
    wide = schema_to_pyarrow(schema_of(schema_json))
    return pa.schema([_narrow_field(field) for field in wide])


def numbered(names: list[str], columns: pa.Schema) -> pa.Schema:
    """Those of the table's columns; InvalidArgument where it does not have one."""
    for name in names:
        if columns.get_field_index(name) < 0:
            raise InvalidArgument(f"the table has no column {name!r}")
    return pa.schema([columns.field(name) for name in names])


def conform(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """The rows with the types of the table that they go to; dictionaries stay what they are.

    Columns that the rows do not have are left out: Iceberg reads them as null. A column that the
    table does not have is an InvalidArgument: open the table with the new schema first.
    """
    wanted = sharing(numbered(rows.column_names, columns), rows.schema)
    if rows.schema.equals(wanted, check_metadata=False):
        return rows
    for field in wanted:
        _check_kept(field.name, rows.schema.field(field.name).type, field.type)
    return rows.cast(wanted)


def _check_kept(name: str, held: pa.DataType, wanted: pa.DataType) -> None:
    """NotHonoured where the table has no place any more for a value that the rows have."""
    if pa.types.is_struct(held) and pa.types.is_struct(wanted):
        there = {field.name: field.type for field in wanted}
        for field in held:
            if field.name not in there:
                raise NotHonoured(
                    f"{name}.{field.name} is not in the table any more, and Penstock writes it"
                )
            _check_kept(f"{name}.{field.name}", field.type, there[field.name])
    elif pa.types.is_list(held) and pa.types.is_list(wanted):
        _check_kept(name, held.value_type, wanted.value_type)


def sharing(columns: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """The columns with the dictionaries that the rows have."""
    return pa.schema([_sharing(field, rows.field(field.name).type) for field in columns])


def _sharing(field: pa.Field, held: pa.DataType) -> pa.Field:
    wanted = field.type
    if pa.types.is_dictionary(held):
        return field.with_type(held)
    if pa.types.is_map(wanted) and pa.types.is_map(held):
        key, item = (
            _sharing(each, part)
            for each, part in (
                (wanted.key_field, held.key_type),
                (wanted.item_field, held.item_type),
            )
        )
        return field.with_type(pa.map_(key, item))
    if pa.types.is_struct(wanted) and pa.types.is_struct(held):
        there = {each.name: each.type for each in held}
        inside = [_sharing(each, there.get(each.name, each.type)) for each in wanted]
        return field.with_type(pa.struct(inside))
    if pa.types.is_list(wanted) and pa.types.is_list(held):
        return field.with_type(pa.list_(_sharing(wanted.value_field, held.value_type)))
    return field


def _narrow_field(field: pa.Field) -> pa.Field:
    return field.with_type(_narrow(field.type))


def _narrow(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([_narrow_field(field) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_narrow_field(type_.key_field), _narrow_field(type_.item_field))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_narrow_field(type_.value_field))
    return _SMALL.get(type_, type_)
