"""Columns of many files, declared: DuckDB then opens none of them before it reads.

Told to put columns together by their names it opens every file first, which takes longer than most
questions. Files that Penstock wrote number their columns as Iceberg does, and the newest of them
has them all; what an older one does not have is null there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake.columns import number_of
from penstock.lake.layout import key_of
from penstock.lake.projection import matching
from penstock.model.errors import NotHonoured
from penstock.query.quoting import identifier, literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FEW_FILES: Final = 50
"""So many are opened in no time, whoever wrote them."""
_SCALARS: Final = {
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}


def declared(paths: Sequence[str]) -> str | None:
    """The option of `read_parquet` for files in the order of their commits.

    None where they are few, or somebody else wrote one: then each says which columns it has.
    """
    if len(paths) <= FEW_FILES or any(key_of(path) is None for path in paths):
        return None
    return _declared(paths[-1])


@lru_cache(maxsize=16)
def _declared(path: str) -> str | None:
    columns = [_column(column, column.name) for column in pq.read_schema(path)]
    return None if None in columns else _option(columns)


def by_other_names(held: pa.Schema, wanted: pa.Schema, path: str) -> tuple[pa.Schema, str]:
    """The columns that are wanted of files like that one, by names that no two share in SQL.

    With the option of `read_parquet` that gives them those. NotHonoured where that cannot be.
    """
    there = [field for field in matching(held, wanted) if field is not None]
    fields = [field.with_name(f"c{number_of(field)}") for field in there]
    columns = [_column(field, field.name) for field in fields]
    for field, column in zip(there, columns, strict=True):
        if column is None:
            raise NotHonoured(
                f"{path} has columns whose names SQL cannot tell apart, and the column"
                f" {field.name} of the type {field.type} without its number"
            )
    return pa.schema(fields), _option(columns)


def _column(field: pa.Field, name: str) -> str | None:
    type_, number = _type(field.type), number_of(field)
    if type_ is None or number is None:
        return None
    return f"{number}: {{name: {literal(name)}, type: {literal(type_)}, default_value: NULL}}"


def _option(columns: Iterable[str | None]) -> str:
    return f"schema = MAP {{{', '.join(map(str, columns))}}}"


def _type(type_: pa.DataType) -> str | None:
    """In DuckDB's words; None where it is not certain."""
    if pa.types.is_list(type_):
        item = _type(type_.value_type)
        return None if item is None else f"{item}[]"
    if pa.types.is_map(type_):
        pair = _type(type_.key_type), _type(type_.item_type)
        return None if None in pair else f"MAP({pair[0]}, {pair[1]})"
    if pa.types.is_struct(type_):
        parts = [(identifier(field.name), _type(field.type)) for field in type_]
        if any(part is None for _, part in parts):
            return None
        inner = ", ".join(f"{name} {part}" for name, part in parts)
        return f"STRUCT({inner})"
    return _SCALARS.get(type_)
