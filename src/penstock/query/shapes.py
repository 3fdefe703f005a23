"""SQL that gives the columns of files the names and the types that the table has for them now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.lake.projection import is_same, matching
from penstock.query.quoting import identifier

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.lake.columns import Columns


def by_names(columns: Columns, source: str, also: Collection[str]) -> str:
    """Every column from the names that files may have for it: each file has one of them.

    `also` are columns that are passed on as they are.
    """
    names = columns.names or {}
    every = [
        f"{_null(field.type)} AS {identifier(name)}"
        for field in columns.schema
        for name in names.get(field.name, (field.name,))
    ]
    # A name that no file has would not be known, so all of them are there, without rows.
    nothing = f"(SELECT {', '.join(every)} WHERE false)"
    chosen = [_first(field, names.get(field.name, (field.name,))) for field in columns.schema]
    chosen += [identifier(name) for name in also]
    return (
        f"(SELECT {', '.join(chosen)} "  # noqa: S608 - our own names
        f"FROM (FROM {nothing} UNION ALL BY NAME FROM {source}))"
    )


def _first(field: pa.Field, names: Collection[str]) -> str:
    if len(names) == 1:
        return f"{identifier(*names)} AS {identifier(field.name)}"
    return f"coalesce({', '.join(map(identifier, names))}) AS {identifier(field.name)}"


def by_numbers(wanted: pa.Schema, held: pa.Schema, source: str, also: Collection[str]) -> str:
    """Every column from the one of the files that has its number, inside of structs too."""
    pairs = zip(matching(held, wanted), wanted, strict=True)
    chosen = [f"{_value(one, field)} AS {identifier(field.name)}" for one, field in pairs]
    chosen += [identifier(name) for name in also]
    return f"(SELECT {', '.join(chosen)} FROM {source})"  # noqa: S608 - our own names


def _value(held: pa.Field | None, wanted: pa.Field) -> str:
    if held is None:
        return _null(wanted.type)
    return _fitted(identifier(held.name), held, wanted, 0)


def _fitted(value: str, held: pa.Field, wanted: pa.Field, depth: int) -> str:
    if is_same(held, wanted):
        return value
    if pa.types.is_struct(wanted.type) and pa.types.is_struct(held.type):
        pairs = zip(matching(held.type, wanted.type), wanted.type, strict=True)
        parts = ", ".join(
            f"{identifier(field.name)} := {_part(value, one, field, depth)}" for one, field in pairs
        )
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({parts}) END"
    each = f"x{depth}"
    if pa.types.is_map(wanted.type) and pa.types.is_map(held.type):
        key = _fitted(f"{each}.key", held.type.key_field, wanted.type.key_field, depth + 1)
        item = _fitted(f"{each}.value", held.type.item_field, wanted.type.item_field, depth + 1)
        entry = f"lambda {each}: struct_pack(key := {key}, value := {item})"
        return f"map_from_entries(list_transform(map_entries({value}), {entry}))"
    if pa.types.is_list(wanted.type) and pa.types.is_list(held.type):
        inner = _fitted(each, held.type.value_field, wanted.type.value_field, depth + 1)
        return f"list_transform({value}, lambda {each}: {inner})"
    return f"CAST({value} AS {_type(wanted.type)})"


def _part(outer: str, held: pa.Field | None, wanted: pa.Field, depth: int) -> str:
    if held is None:
        return _null(wanted.type)
    return _fitted(f"({outer}).{identifier(held.name)}", held, wanted, depth)


def _type(type_: pa.DataType) -> str:
    """As DuckDB calls it."""
    if pa.types.is_struct(type_):
        return f"STRUCT({', '.join(f'{identifier(f.name)} {_type(f.type)}' for f in type_)})"
    if pa.types.is_map(type_):
        return f"MAP({_type(type_.key_type)}, {_type(type_.item_type)})"
    if pa.types.is_list(type_):
        return f"{_type(type_.value_type)}[]"
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if pa.types.is_timestamp(type_):
        zoned = "TIMESTAMPTZ" if type_.tz else "TIMESTAMP"
        return f"{zoned}_NS" if type_.unit == "ns" else zoned
    return _NAMES.get(type_, "BLOB")


def _null(type_: pa.DataType) -> str:
    """Without a type where DuckDB may have another one for it, as for UUIDs."""
    return "NULL" if pa.types.is_fixed_size_binary(type_) else f"NULL::{_type(type_)}"


_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.string(): "VARCHAR",
}
