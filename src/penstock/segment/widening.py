"""The widest of two types: one that holds every value of both without loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

from penstock.segment.nested import can_decode, child_fields, is_list, with_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}
_FLOATS = {16: pa.float16(), 32: pa.float32(), 64: pa.float64()}
_DECIMALS = ((9, 32, pa.decimal32), (18, 64, pa.decimal64), (38, 128, pa.decimal128))
_MOST_DIGITS = 76


def widest(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """A type for the values of both; None where there is none without loss."""
    if a.equals(b) or types.is_null(b):
        return a
    if types.is_null(a):
        return b
    if types.is_dictionary(a) or types.is_dictionary(b):
        return _widest_dictionary(a, b)
    for both_are, widest_of_both in _RULES:
        if both_are(a) and both_are(b):
            return widest_of_both(a, b)
    return None


def union_of_fields(a: Sequence[pa.Field], b: Sequence[pa.Field]) -> list[pa.Field] | None:
    """Every field of both, those of `a` first; None where two of one name have no widest type."""
    mine, theirs = {field.name: field for field in a}, {field.name: field for field in b}
    if len(mine) < len(a) or len(theirs) < len(b):
        return None
    union = [
        _widest_field(field, theirs[field.name])
        if field.name in theirs
        else field.with_nullable(True)
        for field in a
    ]
    union += [field.with_nullable(True) for field in b if field.name not in mine]
    return _complete(union)


def _widest_field(a: pa.Field, b: pa.Field) -> pa.Field | None:
    type_ = widest(a.type, b.type)
    if type_ is None:
        return None
    has_nulls = types.is_null(a.type) or types.is_null(b.type)
    return a.with_type(type_).with_nullable(a.nullable or b.nullable or has_nulls)


def _widest_dictionary(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    encoded = [types.is_dictionary(type_) for type_ in (a, b)]
    values = widest(a.value_type if encoded[0] else a, b.value_type if encoded[1] else b)
    if values is None or not can_decode(values):  # either may have to become plain
        return None
    if not all(encoded):
        return values
    return pa.dictionary(widest_index(a.index_type, b.index_type), values, a.ordered and b.ordered)


def widest_index(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """A type for the indexes of both; none is ever negative or over 2^63."""
    return _widest_integer(a, b) or pa.int64()


def _widest_integer(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if types.is_signed_integer(a) == types.is_signed_integer(b):
        return a if a.bit_width > b.bit_width else b
    signed, unsigned = (a, b) if types.is_signed_integer(a) else (b, a)
    return _SIGNED.get(max(signed.bit_width, 2 * unsigned.bit_width))


def _is_number(type_: pa.DataType) -> bool:
    return bool(types.is_integer(type_) or types.is_floating(type_))


def _widest_number(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if types.is_floating(a) and types.is_floating(b):
        return _FLOATS[max(a.bit_width, b.bit_width)]
    integer = a if types.is_integer(a) else b
    return pa.float64() if integer.bit_width <= 32 else None  # a double has 53 bits


def _is_string(type_: pa.DataType) -> bool:
    return bool(
        types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_)
    )


def _widest_string(_a: pa.DataType, _b: pa.DataType) -> pa.DataType:
    return pa.large_string()


def _is_binary(type_: pa.DataType) -> bool:
    return (
        _is_string(type_)
        or types.is_binary(type_)
        or types.is_large_binary(type_)
        or types.is_binary_view(type_)
        or types.is_fixed_size_binary(type_)
    )


def _has_short_offsets(type_: pa.DataType) -> bool:
    return bool(
        types.is_string(type_) or types.is_binary(type_) or types.is_fixed_size_binary(type_)
    )


def _widest_binary(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    short = _has_short_offsets(a) and _has_short_offsets(b)
    return pa.binary() if short else pa.large_binary()


def _widest_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    scale = max(a.scale, b.scale)
    digits = scale + max(a.precision - a.scale, b.precision - b.scale)
    width = max(a.bit_width, b.bit_width)
    for most, bits, decimal in _DECIMALS:
        if digits <= most and width <= bits:
            return decimal(digits, scale)
    return pa.decimal256(digits, scale) if digits <= _MOST_DIGITS else None


def _widest_struct(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    fields = union_of_fields(list(a), list(b))
    return None if fields is None else pa.struct(fields)


def _widest_map(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    fields = _widest_children(a, b)
    if fields is None:
        return None
    return pa.map_(*fields, keys_sorted=a.keys_sorted and b.keys_sorted)


def _widest_list(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if getattr(a, "list_size", None) != getattr(b, "list_size", None):
        return None  # only lists of a fixed size have one
    fields = _widest_children(a, b)
    return None if fields is None else with_fields(b if types.is_list(a) else a, fields)


def _widest_children(a: pa.DataType, b: pa.DataType) -> list[pa.Field] | None:
    fields = list(map(_widest_field, child_fields(a), child_fields(b)))
    return _complete(fields)


def _complete(fields: list[pa.Field | None]) -> list[pa.Field] | None:
    return None if any(field is None for field in fields) else fields


_RULES = (
    (types.is_integer, _widest_integer),
    (_is_number, _widest_number),
    (_is_string, _widest_string),
    (_is_binary, _widest_binary),
    (types.is_decimal, _widest_decimal),
    (types.is_struct, _widest_struct),
    (types.is_map, _widest_map),
    (is_list, _widest_list),
)
