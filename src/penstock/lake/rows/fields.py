"""The columns of a table or struct by their names, as the lake writes them.

A column that is not there is null. So are zeros and empty strings where OTLP does not tell them
from what was not sent, and numbers that no int64 holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from penstock.otel.columns import plain, scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

_LENGTH: Final = pa.int32()
_SIGNED: Final = pa.int64()
_UNSIGNED: Final = pa.uint64()


class Fields:
    """Some columns of the same length. Types may be wider than OTAP's, or have dictionaries."""

    def __init__(self, columns: Mapping[str, pa.Array], count: int) -> None:
        self._columns = columns
        self.count: Final = count

    @classmethod
    def of(cls, table: pa.RecordBatch) -> Fields:
        """Those of a table."""
        return cls(dict(zip(table.schema.names, table.columns, strict=True)), table.num_rows)

    def inner(self, name: str) -> Fields:
        """Those of a struct; all of them null where it is."""
        struct = self._columns.get(name)
        if struct is None or not types.is_struct(struct.type):
            return Fields({}, self.count)
        names = [field.name for field in struct.type]
        return Fields(dict(zip(names, struct.flatten(), strict=True)), self.count)

    def get(self, name: str) -> pa.Array | None:
        """The column as it is."""
        column = self._columns.get(name)
        return None if column is None or types.is_null(column.type) else column

    def plain(self, name: str, type_: pa.DataType) -> pa.Array:
        """The values as they are."""
        column = self.get(name)
        return pa.nulls(self.count, type_) if column is None else as_type(plain(column), type_)

    def text(self, name: str) -> pa.Array:
        """Strings, perhaps with a dictionary; null for empty ones."""
        column = self.get(name)
        if column is None:
            return pa.nulls(self.count, pa.string())
        if not types.is_dictionary(column.type):
            return _without_empty(as_type(column, pa.string()))
        values = _without_empty(as_type(column.dictionary, pa.string()))
        return pa.DictionaryArray.from_arrays(column.indices, values, safe=False)

    def positive(self, name: str) -> pa.Array:
        """Counts and flags as int64; null for zeros."""
        column = self.plain(name, _SIGNED)
        return non_zero(column) if name in self._columns else column

    def nanos(self, name: str) -> pa.Array:
        """A time in nanoseconds; null for zeros, and from the year 2262 on."""
        return nanos(self.bits(name)) if name in self._columns else pa.nulls(self.count, _SIGNED)

    def bits(self, name: str) -> pa.Array:
        """A time or duration as OTLP has it: 64 bits without a sign."""
        column = self.get(name)
        return pa.nulls(self.count, _UNSIGNED) if column is None else column.view(_UNSIGNED)

    def unsigned(self, name: str) -> pa.Array:
        """Counts of 64 bits without a sign; null for those over int64."""
        column = self.plain(name, _UNSIGNED)
        return signed(column) if name in self._columns else column.view(_SIGNED)


def as_type(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The array as `type_`, where it has another type."""
    return array if array.type.equals(type_) else array.cast(type_)


def signed(array: pa.Array) -> pa.Array:
    """64 bits without a sign as int64; null where it does not hold them."""
    values = array.view(_SIGNED)
    return null_unless(pc.greater_equal(values, scalar(0, _SIGNED)), values)


def null_unless(wanted: pa.BooleanArray, array: pa.Array) -> pa.Array:
    """The array with null where `wanted` is false."""
    if wanted.false_count == 0:
        return array
    return pc.if_else(wanted, array, scalar(None, array.type))


def non_zero(array: pa.Array) -> pa.Array:
    """The numbers with null for zeros."""
    return null_unless(pc.not_equal(array, scalar(0, array.type)), array)


def _without_empty(texts: pa.Array) -> pa.Array:
    return null_unless(pc.greater(pc.binary_length(texts), scalar(0, _LENGTH)), texts)


# --- times -------------------------------------------------------------------------------------

_THOUSAND: Final = 1000
_DAY_US: Final = 86_400_000_000


def nanos(bits: pa.Array) -> pa.Array:
    """Times of `Fields.bits` as int64; null for zeros, and for those over int64."""
    times = bits.view(_SIGNED)
    return null_unless(pc.greater(times, scalar(0, _SIGNED)), times)


def micros(bits: pa.Array) -> pa.Array:
    """Times of `Fields.bits` in microseconds, which reach the year 2554; null for zeros."""
    whole = pc.divide(bits, scalar(_THOUSAND, _UNSIGNED)).view(pa.timestamp("us", "UTC"))
    return null_unless(pc.not_equal(bits, scalar(0, _UNSIGNED)), whole)


def days(times: pa.Array) -> pa.Array:
    """The days, in UTC, of such times."""
    whole = pc.divide(times.view(_SIGNED), scalar(_DAY_US, _SIGNED))
    return whole.cast(pa.int32()).view(pa.date32())


# --- names -------------------------------------------------------------------------------------


def named(codes: pa.Array, names: Mapping[int, str | None]) -> pa.Array:
    """Numbers by their names, with a dictionary; those without one as decimal text."""
    encoded = plain(codes).dictionary_encode()
    known = [names.get(code, str(code)) for code in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(known, pa.string()))
