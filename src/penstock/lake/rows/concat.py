"""Arrays one after the other, which need not have the same fields or dictionaries.

Arrow's own concatenation merges dictionaries by their values, and fails where the indexes become
too small for that. Here dictionaries follow each other too, and no value is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from penstock.otel.lists import from_zero
from penstock.segment.dictionaries import holds_dictionary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_INDEX: Final = pa.int32()


def concat(parts: Sequence[pa.Array]) -> pa.Array:
    """All values in order. Structs have the fields of all; ArrowInvalid for types that differ."""
    kinds = dict.fromkeys(part.type for part in parts)
    if len(kinds) == 1 and not any(map(holds_dictionary, kinds)):
        return pa.concat_arrays(parts)
    if any(map(types.is_dictionary, kinds)):
        return _dictionaries(parts)
    if all(map(types.is_struct, kinds)):
        return _structs(parts, {field.name: field.type for kind in kinds for field in kind})
    return pa.concat_arrays(parts)


def owners(counts: pa.Array) -> pa.Array:
    """Out of how many rows each part has: the number of the part for each row."""
    ends = from_zero(pc.cumulative_sum(counts))
    rows = pa.ListArray.from_arrays(ends, pa.nulls(ends[-1].as_py()))
    return pc.list_parent_indices(rows)


def _structs(parts: Sequence[pa.StructArray], fields: dict[str, pa.DataType]) -> pa.StructArray:
    arrays = [concat([_field(part, *field) for part in parts]) for field in fields.items()]
    mask = None
    if any(part.null_count for part in parts):
        mask = pa.concat_arrays([part.is_null() for part in parts])
    return pa.StructArray.from_arrays(arrays, names=list(fields), mask=mask)


def _field(part: pa.StructArray, name: str, type_: pa.DataType) -> pa.Array:
    index = part.type.get_field_index(name)
    return pa.nulls(len(part), type_) if index < 0 else part.field(index)


def _dictionaries(parts: Sequence[pa.Array]) -> pa.DictionaryArray:
    indexes, dictionaries = zip(*map(_encoded, parts), strict=True)
    if len({index.type for index in indexes}) > 1:
        indexes = tuple(index.cast(_INDEX) for index in indexes)
    at = pa.concat_arrays(indexes)
    if len({_address(values) for values in dictionaries}) == 1:
        return pa.DictionaryArray.from_arrays(at, dictionaries[0])
    lengths = _lengths(dictionaries)
    starts = pc.subtract(pc.cumulative_sum(lengths), lengths)
    moved = pc.add(at.cast(_INDEX), starts.take(owners(_lengths(parts))))
    return pa.DictionaryArray.from_arrays(moved, pa.concat_arrays(dictionaries))


def _encoded(part: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Indexes and dictionary; an array without one is its own."""
    if types.is_dictionary(part.type):
        return part.indices, part.dictionary
    return pa.arange(0, len(part)).cast(_INDEX), part


def _lengths(parts: Iterable[pa.Array]) -> pa.Array:
    return pa.array([len(part) for part in parts], _INDEX)


def _address(values: pa.Array) -> tuple[int, ...]:
    """Equal for arrays that are the same memory."""
    places = (buffer.address if buffer else 0 for buffer in values.buffers())
    return (len(values), values.offset, *places)
