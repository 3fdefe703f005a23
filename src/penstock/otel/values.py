"""The columns of OTLP's values: a type, and one column for each type that has a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.otel.cbor import UNDEFINED, array_to_cbor, cbor_to_array, cbor_to_map, map_to_cbor
from penstock.otel.columns import Columns, dictionary_if_shorter, plain, scalar
from penstock.otel.lists import from_zero

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EMPTY, STR, INT, DOUBLE, BOOL, MAP, SLICE, BYTES = range(8)

_PLAIN: Final = {
    STR: ("str", "string_value"),
    INT: ("int", "int_value"),
    DOUBLE: ("double", "double_value"),
    BOOL: ("bool", "bool_value"),
    BYTES: ("bytes", "bytes_value"),
}
_NESTED: Final = {
    MAP: ("kvlist_value", map_to_cbor, cbor_to_map),
    SLICE: ("array_value", array_to_cbor, cbor_to_array),
}
_ENCODED: Final = (STR, BYTES)
_CODE: Final = pa.uint8()


class NotCanonical(Exception):
    """A message has two values where OTLP has a choice; the last one counts."""


def add_values(columns: Columns, value: pa.StructArray, *, mark_absent: bool) -> None:
    """Adds `type` and what else is needed. With `mark_absent`, absent and empty values differ."""
    fields = {kind: value.field(field) for kind, (_, field) in _PLAIN.items()}
    present = {kind: array for kind, array in fields.items() if array.null_count < len(array)}
    masks = {kind: array.is_valid() for kind, array in present.items()}
    nested = {kind: value.field(field) for kind, (field, *_) in _NESTED.items()}
    nested = {kind: array for kind, array in nested.items() if len(array.values)}
    masks |= {kind: _nonempty(array) for kind, array in nested.items()}
    columns.add("type", type_codes(masks, len(value)), required=True)
    for kind, (name, _) in _PLAIN.items():
        if kind in present:
            array = present[kind]
            columns.add(name, dictionary_if_shorter(array) if kind in _ENCODED else array)
    columns.add("ser", _serialized(value, nested, masks, mark_absent))


def type_codes(masks: dict[int, pa.BooleanArray], count: int) -> pa.Array:
    """The code of each row: that of the one mask that is true there, or 0."""
    codes: pa.Array | pa.Scalar = scalar(EMPTY, _CODE)
    for kind, mask in masks.items():
        codes = pc.if_else(mask, scalar(kind, _CODE), codes)
    if isinstance(codes, pa.Scalar):
        return pa.repeat(codes, count)
    if len(masks) > 1:
        empty = pc.equal(codes, scalar(EMPTY, _CODE)).true_count
        if sum(mask.true_count for mask in masks.values()) != count - empty:
            raise NotCanonical
    return codes


def _serialized(
    value: pa.StructArray,
    nested: dict[int, pa.ListArray],
    masks: dict[int, pa.BooleanArray],
    mark_absent: bool,
) -> pa.Array | None:
    column = None
    for kind, lists in nested.items():
        convert = _NESTED[kind][1]
        data = pa.array([convert(encoded) for encoded in _joined(lists)], pa.binary())
        column = _replaced(column, masks[kind], data)
    if mark_absent and value.null_count:
        column = _replaced(column, value.is_null(), scalar(UNDEFINED, pa.binary()))
    return column


def _nonempty(lists: pa.ListArray) -> pa.BooleanArray:
    return pc.greater(pc.list_value_length(lists), scalar(0, pa.int32()))


def _joined(lists: pa.ListArray) -> Iterator[bytes]:
    """The encoding of each value that there is: mostly one piece, more if they are to be merged."""
    for pieces in lists.filter(_nonempty(lists)).to_pylist():
        yield b"".join(pieces)


def _replaced(
    column: pa.Array | None, mask: pa.BooleanArray, data: pa.Array | pa.Scalar
) -> pa.Array:
    if column is None:
        column = pa.nulls(len(mask), pa.binary())
    return pc.replace_with_mask(column, mask, data)


def value_structs(table: pa.RecordBatch | pa.StructArray) -> pa.StructArray:
    """Such columns as messages for `ptars`; what is not of a row's type is ignored."""
    columns = _columns_of(table)
    type_ = columns["type"]
    values = {
        field: _where(_is(type_, kind), columns[name])
        for kind, (name, field) in _PLAIN.items()
        if name in columns
    }
    absent = table.is_null() if isinstance(table, pa.StructArray) else None
    if "ser" in columns:
        ser = columns["ser"]
        for kind, (field, _, convert) in _NESTED.items():
            active = pc.and_(_is(type_, kind), ser.is_valid())
            if active.true_count:
                values[field] = _lists(active, ser, convert)
        if absent is None:
            marked = pc.equal(ser, scalar(UNDEFINED, ser.type))
            absent = pc.and_(_is(type_, EMPTY), pc.fill_null(marked, scalar(False, pa.bool_())))
    if not values:
        values["bool_value"] = pa.nulls(len(type_), pa.bool_())
    return pa.StructArray.from_arrays(list(values.values()), names=list(values), mask=absent)


def _columns_of(table: pa.RecordBatch | pa.StructArray) -> dict[str, pa.Array]:
    if isinstance(table, pa.RecordBatch):
        names, arrays = table.schema.names, table.columns
    else:
        names = [field.name for field in table.type]
        arrays = [table.field(number) for number in range(len(names))]
    return dict(zip(names, map(plain, arrays), strict=True))


def _is(type_: pa.Array, kind: int) -> pa.BooleanArray:
    return pc.equal(type_, scalar(kind, _CODE))


def _where(active: pa.BooleanArray, column: pa.Array) -> pa.Array:
    return pc.if_else(active, column, scalar(None, column.type))


def _lists(
    active: pa.BooleanArray, ser: pa.Array, convert: Callable[[bytes], bytes]
) -> pa.ListArray:
    """For each active row a list with its one value, encoded; an empty one for each other row."""
    encoded = [convert(data) for data in ser.filter(active).to_pylist()]
    offsets = from_zero(pc.cumulative_sum(active.cast(pa.int32())))
    return pa.ListArray.from_arrays(offsets, pa.array(encoded, pa.binary()))
