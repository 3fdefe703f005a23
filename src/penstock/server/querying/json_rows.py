"""Rows as JSON that every reader takes alike.

| value | in JSON |
|---|---|
| integer within ±(2^53 - 1) | number |
| integer beyond | string of its digits: a number would be rounded by many readers |
| decimal | number where that is exact, otherwise a string of its digits |
| NaN, Infinity, -Infinity | those words, as strings |
| timestamp | string, ISO 8601; `Z` where it has a time zone |
| date, time | string, ISO 8601 |
| interval | string, as Arrow writes it |
| binary | string, base64 |
| list | array |
| struct, map | object |
"""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

if TYPE_CHECKING:
    from collections.abc import Callable

SAFE: Final = 2**53 - 1
"""The largest integer that is exact as a double, as JSON's numbers often become."""


def columns_of(rows: pa.Table) -> list[dict[str, str]]:
    """Names and Arrow types."""
    return [{"name": field.name, "type": str(field.type)} for field in rows.schema]


def json_rows(rows: pa.Table) -> list[list[Any]]:
    """A list a row, in the order of the columns."""
    if not rows.num_columns:
        return [[] for _ in range(rows.num_rows)]
    return [list(row) for row in zip(*map(_values, rows.columns), strict=True)]


def json_objects(rows: pa.Table) -> list[dict[str, Any]]:
    """An object a row."""
    names = rows.column_names
    return [dict(zip(names, row, strict=True)) for row in json_rows(rows)]


def _values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Of one column; what JSON has itself is not looked at value by value."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # too large for one
            return [value for chunk in column.chunks for value in _values(chunk)]
    type_ = column.type
    if pt.is_dictionary(type_):
        return _values(column.dictionary_decode())
    for is_kind, read in _KINDS:
        if is_kind(type_):
            return read(column)
    return _texts(column)


def _plain(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _texts(column: pa.Array) -> list[Any]:
    try:
        return _plain(column.cast(pa.string()))
    except pa.ArrowNotImplementedError:
        return [None if value is None else str(value) for value in column.to_pylist()]


def _integers(column: pa.Array) -> list[Any]:
    values = _plain(column)
    most = pc.min_max(column).as_py()
    if most["max"] is None or -SAFE <= most["min"] <= most["max"] <= SAFE:
        return values
    return [v if v is None or -SAFE <= v <= SAFE else str(v) for v in values]


def _floats(column: pa.Array) -> list[Any]:
    values = _plain(column)
    if pc.all(pc.is_finite(column)).as_py() is not False:
        return values
    return [v if v is None or math.isfinite(v) else _word(v) for v in values]


def _decimals(column: pa.Array) -> list[Any]:
    return [None if value is None else _decimal(value) for value in column.to_pylist()]


def _decimal(value: Decimal) -> int | float | str:
    if value == value.to_integral_value():
        return int(value) if abs(value) <= SAFE else format(value, "f")
    nearest = float(value)
    return nearest if Decimal(repr(nearest)) == value else format(value, "f")


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _timestamps(column: pa.Array) -> list[Any]:
    zone = column.type.tz
    text = column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
    text = pc.replace_substring(text, " ", "T", max_replacements=1)
    return _plain(pc.binary_join_element_wise(text, "Z", "") if zone else text)


def _binary(column: pa.Array) -> list[Any]:
    return [None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()]


def _lists(column: pa.Array) -> list[Any]:
    values = _values(column.flatten())
    lengths = pc.list_value_length(column).to_pylist()
    found, at = list[Any](), 0
    for length in lengths:
        found.append(None if length is None else values[at : at + length])
        at += length or 0
    return found


def _structs(column: pa.Array) -> list[Any]:
    names = [field.name for field in column.type]
    parts = [_values(part) for part in column.flatten()]
    rows = zip(*parts, strict=True) if parts else [()] * len(column)
    valid = column.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if is_there else None
        for row, is_there in zip(rows, valid, strict=True)
    ]


def _maps(column: pa.Array) -> list[Any]:
    pairs = list(zip(_values(column.keys), _values(column.items), strict=True))
    offsets = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [
        {str(key): value for key, value in pairs[begin:end]} if is_there else None
        for begin, end, is_there in zip(offsets, offsets[1:], valid, strict=False)
    ]


_KINDS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]], ...]] = (
    (pt.is_integer, _integers),
    (lambda t: pt.is_string(t) or pt.is_boolean(t) or pt.is_null(t), _plain),
    (lambda t: pt.is_large_string(t) or pt.is_string_view(t), _plain),
    (lambda t: pt.is_float32(t) or pt.is_float64(t), _floats),
    (pt.is_decimal, _decimals),
    (pt.is_timestamp, _timestamps),
    (
        lambda t: (
            pt.is_binary(t)
            or pt.is_large_binary(t)
            or pt.is_binary_view(t)
            or pt.is_fixed_size_binary(t)
        ),
        _binary,
    ),
    (pt.is_map, _maps),
    (lambda t: pt.is_list(t) or pt.is_large_list(t) or pt.is_fixed_size_list(t), _lists),
    (pt.is_struct, _structs),
)
