"""Single columns: how a field of a protobuf message becomes a column of an OTAP table, and back.

Arrays that come from `ptars` are fresh: without an offset, and without a validity bitmap where the
field has no presence. All of them are one block of memory, which is freed when none is in use any
more; so what goes into a table is copied.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Mapping

TIME: Final = pa.timestamp("ns")
TRACE_ID: Final = pa.binary(16)
SPAN_ID: Final = pa.binary(8)
MOST_KEYS: Final = 65_535
"""A dictionary with more values than this has no u16 indexes."""

_LENGTH: Final = pa.int32()
_SAMPLE: Final = 1024


@cache
def scalar(value: object, type_: pa.DataType) -> pa.Scalar:
    """The value as Arrow has it. Cached: making one looks for optional modules on the disk."""
    return pa.scalar(value, type_)


class When(enum.Enum):
    """Which values are null in OTAP."""

    NEVER = 0
    """None: what protobuf gives, defaults too."""
    DEFAULT = 1
    """Zeros and empty strings, which protobuf does not tell from absent ones."""
    ABSENT = 2
    """Those that are absent, which protobuf tells from zeros for this field."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column that holds one field of a message."""

    name: str
    type: pa.DataType | None = None
    """None: as `ptars` gives it."""
    null: When = When.DEFAULT
    required: bool = False
    """Whether the column is in every table, and never null."""
    encoded: bool = False
    """Whether few values are to be expected, and a dictionary allowed."""
    field: str = ""
    """The name in protobuf, where it is another."""

    @property
    def source(self) -> str:
        """The name in protobuf."""
        return self.field or self.name

    def decode(self, array: pa.Array) -> pa.Array | None:
        """The column; None where every value would be null, or every list empty."""
        if types.is_list(array.type):
            return array if len(array.values) else None
        column: pa.Array | None = array
        if self.null is When.DEFAULT:
            column = without_defaults(array)
        elif self.null is When.ABSENT and array.null_count == len(array):
            column = None
        if column is None or self.type is None or column.type.equals(self.type):
            return dictionary(column) if self.encoded and column is not None else column
        return column.view(self.type)

    def encode(self, column: pa.Array, type_: pa.DataType) -> pa.Array:
        """The field's values for `ptars`, which takes a null for a default or for absence."""
        column = plain(column)
        if self.type is None or column.type.equals(type_):
            return column
        return column.view(type_)


def without_defaults(array: pa.Array) -> pa.Array | None:
    """The array with null for each zero or empty string; None where there is nothing else."""
    if types.is_string(array.type) or types.is_binary(array.type):
        if not array.view(pa.binary()).total_values_length:
            return None
        set_ = pc.not_equal(pc.binary_length(array), scalar(0, _LENGTH))
    else:
        # By their bits: -0.0 is not the default of a double.
        bits = array.view(pa.int64()) if types.is_float64(array.type) else array
        set_ = pc.not_equal(bits, scalar(0, bits.type))
    count = set_.true_count
    if not count:
        return None
    return array if count == len(array) else with_validity(array, set_)


def owned(array: pa.Array) -> pa.Array:
    """A copy, which keeps nothing else in memory."""
    if types.is_dictionary(array.type):  # was made here
        return array
    children = None
    buffers = array.buffers()
    if types.is_list(array.type):
        children, buffers = [owned(array.values)], buffers[:2]
    elif types.is_struct(array.type):
        count = array.type.num_fields
        children, buffers = [owned(array.field(number)) for number in range(count)], buffers[:1]
    copies = [None if buffer is None else _copy(buffer) for buffer in buffers]
    return pa.Array.from_buffers(
        array.type, len(array), copies, offset=array.offset, children=children
    )


def _copy(buffer: pa.Buffer) -> pa.Buffer:
    copy = pa.allocate_buffer(buffer.size)
    memoryview(copy)[:] = memoryview(buffer)
    return copy


def with_validity(array: pa.Array, valid: pa.BooleanArray) -> pa.Array:
    """The array with null where `valid` is false; the values stay where they are."""
    buffers = [valid.buffers()[1], *array.buffers()[1:]]
    return pa.Array.from_buffers(array.type, len(array), buffers)


def fixed_width(
    array: pa.BinaryArray, type_: pa.FixedSizeBinaryType, *, required: bool = False
) -> tuple[pa.Array | None, pa.BooleanArray | None]:
    """Ids as `type_`, and which of them have another length and are null (or zeros) instead.

    Empty ones are null, unless `required`: there they are zeros, and count as of another length.
    """
    if not (array.total_values_length or required):
        return None, None
    width = type_.byte_width
    lengths = pc.binary_length(array)
    fits = pc.equal(lengths, scalar(width, _LENGTH))
    if fits.false_count == 0:
        values = array.buffers()[2]
        return pa.Array.from_buffers(type_, len(array), [None, values]), None
    ids = pc.if_else(fits, array, scalar(None, array.type)).cast(type_)
    if required:
        return pc.fill_null(ids, scalar(bytes(width), type_)), pc.invert(fits)
    odd = pc.and_not(pc.not_equal(lengths, scalar(0, _LENGTH)), fits)
    return (ids if fits.true_count else None), (odd if odd.true_count else None)


def dictionary(array: pa.Array, *, index: pa.DataType | None = None) -> pa.Array:
    """The array with a dictionary, unless it has too many values for one."""
    encoded = array.dictionary_encode()
    values = len(encoded.dictionary)
    if values > MOST_KEYS:
        return array
    index = index or (pa.uint8() if values <= 255 else pa.uint16())
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(index), encoded.dictionary, safe=False
    )


def dictionary_if_shorter(array: pa.Array) -> pa.Array:
    """With u16 indexes, if its first values repeat themselves enough for that to save space."""
    sample = array.slice(0, _SAMPLE)
    values = len(sample) - sample.null_count
    if values < 2 or 2 * pc.count_distinct(sample).as_py() > values:
        return array
    return dictionary(array, index=pa.uint16())


def plain(array: pa.Array) -> pa.Array:
    """The array without a dictionary."""
    return array.dictionary_decode() if types.is_dictionary(array.type) else array


def numbers(count: int, type_: pa.DataType) -> pa.Array:
    """0, 1, … up to `count`."""
    return pa.arange(0, count).cast(type_)


class Columns:
    """Gathers the columns of a table; those that are None are left out."""

    def __init__(self) -> None:
        self._arrays: list[pa.Array] = []
        self._fields: list[pa.Field] = []

    def add(self, name: str, array: pa.Array | None, *, required: bool = False) -> None:
        """The next column."""
        if array is not None:
            self._arrays.append(owned(array))
            self._fields.append(pa.field(name, array.type, nullable=not required))

    def add_struct(self, name: str, inner: Columns, missing: pa.BooleanArray | None = None) -> None:
        """The next column: one that holds all the inner ones, null where `missing` is true."""
        if inner._arrays:
            array = pa.StructArray.from_arrays(inner._arrays, fields=inner._fields, mask=missing)
            self._arrays.append(array)
            self._fields.append(pa.field(name, array.type))

    def batch(self) -> pa.RecordBatch:
        """The table."""
        return pa.RecordBatch.from_arrays(self._arrays, schema=pa.schema(self._fields))


def struct_of(
    fields: Mapping[str, pa.Array | None], missing: pa.BooleanArray | None = None
) -> pa.StructArray | None:
    """Messages for `ptars` of the fields that there are; None where there are none."""
    there = {name: array for name, array in fields.items() if array is not None}
    if not there:
        return None
    return pa.StructArray.from_arrays(list(there.values()), names=list(there), mask=missing)
