"""Rewrites the batches of a stream so that each dictionary is the same in all of them.

An Arrow IPC file then needs no deltas, and any chunk of it can be read without the others. A
`Vocabulary` has the values of one column in all batches; a column with too many becomes `Plain`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from penstock.segment.dictionaries import Path, dictionary_at, dictionary_paths
from penstock.segment.nested import (
    can_decode,
    child_fields,
    children,
    decode,
    with_children,
    with_fields,
)
from penstock.segment.widening import widest_index

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_PLAIN_BYTES = 256 * 1024 * 1024
"""A column stays encoded where a batch of it would take more than this without a dictionary."""
_BITS = {pa.float16(): pa.uint16(), pa.float32(): pa.uint32(), pa.float64(): pa.uint64()}
_SIGNED_INDEXES = (pa.int8(), pa.int16(), pa.int32())
_UNSIGNED_INDEXES = (pa.uint8(), pa.uint16(), pa.uint32())


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The values of a column in all its batches, and where each batch's own values are in it."""

    type: pa.DictionaryType
    values: pa.Array
    mappings: Sequence[pa.Array | None]
    """For each batch: the place of each of its values; None where they have kept theirs."""

    def apply(self, array: pa.DictionaryArray, batch: int) -> pa.DictionaryArray:
        """The column of the batch with indexes into the vocabulary."""
        mapping, indexes = self.mappings[batch], array.indices
        indexes = indexes.cast(self.type.index_type) if mapping is None else mapping.take(indexes)
        # Not checked again: the indexes were made from the values.
        return pa.DictionaryArray.from_arrays(
            indexes, self.values, ordered=self.type.ordered, safe=False
        )


@dataclass(frozen=True, slots=True)
class Plain:
    """A column that is stored without a dictionary."""

    type: pa.DataType

    def apply(self, array: pa.DictionaryArray, _batch: int) -> pa.Array:
        return decode(array.dictionary, array.indices)


def find_vocabulary(
    arrays: Sequence[pa.DictionaryArray], most_values: int
) -> Vocabulary | Plain | None:
    """How the column is to be stored; None: as it is."""
    type_ = arrays[0].type
    dictionaries, numbers = _distinct([array.dictionary for array in arrays])
    values, mappings = dictionaries[0], None
    if len(dictionaries) > 1:
        try:
            values, mappings = _union(dictionaries)
        except pa.ArrowNotImplementedError:
            return Plain(type_.value_type)
    if len(values) > most_values and _can_be_plain(arrays):
        return Plain(type_.value_type)
    index_type = _index_type(arrays, len(values))
    if len(dictionaries) == 1 and all(array.type.index_type == index_type for array in arrays):
        return None
    ordered = type_.ordered and len(dictionaries) == 1  # a union follows the order of arrival
    column_type = pa.dictionary(index_type, type_.value_type, ordered)
    if mappings is None:
        return Vocabulary(column_type, values, [None] * len(arrays))
    places = [mapping.cast(index_type) for mapping in mappings]
    return Vocabulary(column_type, values, [places[number] for number in numbers])


def _distinct(dictionaries: Sequence[pa.Array]) -> tuple[list[pa.Array], list[int]]:
    """The different ones, and for each dictionary which of those it is.

    Looks at the first and the latest only: a repetition that is overlooked costs time, no more.
    """
    distinct = [dictionaries[0]]
    numbers = []
    for dictionary in dictionaries:
        for number in {0, len(distinct) - 1}:
            if _bits(dictionary).equals(_bits(distinct[number])):
                numbers.append(number)
                break
        else:
            numbers.append(len(distinct))
            distinct.append(dictionary)
    return distinct, numbers


def _union(dictionaries: Sequence[pa.Array]) -> tuple[pa.Array, list[pa.Array]]:
    """The values of all, each once and no nulls; and for each dictionary its values' places."""
    encoded = _bits(pa.concat_arrays(dictionaries)).dictionary_encode()
    mappings, start = [], 0
    for dictionary in dictionaries:
        mappings.append(encoded.indices.slice(start, len(dictionary)))
        start += len(dictionary)
    type_ = dictionaries[0].type
    return encoded.dictionary.view(type_) if type_ in _BITS else encoded.dictionary, mappings


def _bits(values: pa.Array) -> pa.Array:
    """Floats as integers, so that 0.0 and -0.0 are two values and NaN is one."""
    bits = _BITS.get(values.type)
    return values if bits is None else values.view(bits)


def _can_be_plain(arrays: Sequence[pa.DictionaryArray]) -> bool:
    return can_decode(arrays[0].type.value_type) and all(
        _plain_bytes(array) <= _MOST_PLAIN_BYTES for array in arrays
    )


def _plain_bytes(array: pa.DictionaryArray) -> int:
    """What the values take without a dictionary, where their lengths differ; else 0."""
    try:
        lengths = pc.binary_length(array.dictionary)
    except pa.ArrowNotImplementedError:
        return 0
    return pc.sum(lengths.take(array.indices)).as_py() or 0


def _index_type(arrays: Sequence[pa.DictionaryArray], values: int) -> pa.DataType:
    index_type = arrays[0].type.index_type
    for array in arrays:
        index_type = widest_index(index_type, array.type.index_type)
    signed = types.is_signed_integer(index_type)
    candidates = _SIGNED_INDEXES if signed else _UNSIGNED_INDEXES
    for wider in candidates:
        if wider.bit_width >= index_type.bit_width and values <= 1 << wider.bit_width - signed:
            return wider
    return index_type


class Unification:
    """The batches of one stream, rewritten so that each dictionary is the same in all of them.

    A batch is rewritten when it is asked for; columns that need no change are not touched.
    """

    def __init__(
        self, schema: pa.Schema, batches: Sequence[pa.RecordBatch], most_values: int
    ) -> None:
        """`batches` have the columns of `schema` in its order."""
        self._batches = batches
        self._changes: dict[Path, Vocabulary | Plain] = {}
        for path in dictionary_paths(schema):
            arrays = [dictionary_at(batch, path) for batch in batches]
            change = find_vocabulary(arrays, most_values)
            if change is not None:
                self._changes[path] = change
        self._touched = {path[:n] for path in self._changes for n in range(1, len(path) + 1)}
        fields = [self._field(field, (number,)) for number, field in enumerate(schema)]
        self.schema = pa.schema(fields, schema.metadata)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return (self._rewrite(batch, number) for number, batch in enumerate(self._batches))

    def _rewrite(self, batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
        if not self._changes:
            return batch
        columns = [
            self._array(column, (place,), field.type, number)
            for place, (column, field) in enumerate(zip(batch.columns, self.schema, strict=True))
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _array(self, array: pa.Array, path: Path, type_: pa.DataType, batch: int) -> pa.Array:
        if path not in self._touched:
            return array
        if path in self._changes:
            return self._changes[path].apply(array, batch)
        kids = [
            self._array(kid, (*path, number), field.type, batch)
            for number, (kid, field) in enumerate(
                zip(children(array), child_fields(type_), strict=True)
            )
        ]
        return with_children(array, type_, kids)

    def _field(self, field: pa.Field, path: Path) -> pa.Field:
        if path not in self._touched:
            return field
        if path in self._changes:
            return field.with_type(self._changes[path].type)
        fields = [
            self._field(child, (*path, number))
            for number, child in enumerate(child_fields(field.type))
        ]
        return field.with_type(with_fields(field.type, fields))
