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

from penstock.lake.layout import key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

FEW_FILES: Final = 50
"""So many are opened in no time, whoever wrote them."""
_NUMBER: Final = b"PARQUET:field_id"
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
    columns = []
    for column in pq.read_schema(path):
        type_, number = _type(column.type), (column.metadata or {}).get(_NUMBER)
        if type_ is None or number is None:
            return None
        name, text = _quoted(column.name), _quoted(type_)
        columns.append(f"{int(number)}: {{name: {name}, type: {text}, default_value: NULL}}")
    return f"schema = MAP {{{', '.join(columns)}}}"


def _type(type_: pa.DataType) -> str | None:
    """In DuckDB's words; None where it is not certain."""
    if pa.types.is_list(type_):
        item = _type(type_.value_type)
        return None if item is None else f"{item}[]"
    if pa.types.is_map(type_):
        pair = _type(type_.key_type), _type(type_.item_type)
        return None if None in pair else f"MAP({pair[0]}, {pair[1]})"
    if pa.types.is_struct(type_):
        parts = [(field.name.replace('"', '""'), _type(field.type)) for field in type_]
        if any(part is None for _, part in parts):
            return None
        inner = ", ".join(f'"{name}" {part}' for name, part in parts)
        return f"STRUCT({inner})"
    return _SCALARS.get(type_)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
