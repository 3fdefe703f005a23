"""Attributes as maps of strings, beside maps of what the values were that were no strings.

Both are null where they would be empty: `attributes` of a record without any, `attribute_types` of
one with strings alone, which is most of them. Their texts are shared: telemetry says the same again
and again, and numbers are gathered, sorted and written quicker than texts.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from penstock.lake.rows.fields import Fields, as_type
from penstock.lake.rows.parents import Grouping, place
from penstock.lake.rows.values import is_text, shared_names, shared_texts, type_codes
from penstock.lake.schemas import SHARED_STRINGS
from penstock.otel.columns import scalar


class Attributes(NamedTuple):
    """Two maps for each parent."""

    texts: pa.Array
    types: pa.Array

    def columns(self) -> dict[str, pa.Array]:
        """As the tables call them."""
        return {"attributes": self.texts, "attribute_types": self.types}


def attributes_of(table: pa.RecordBatch | None, ids: pa.Array) -> Attributes:
    """Those of the parents with these ids.

    Of a key that a parent has twice the last one counts: readers refuse maps with equal keys.
    """
    if table is None or not table.num_rows:
        nothing = pa.nulls(len(ids), SHARED_STRINGS)
        return Attributes(nothing, nothing)
    table, places = place(table, ids)
    keys = _Keys(table.column("key"))
    grouping = Grouping.of(places, len(ids))
    if keys.any_twice(grouping):
        rows = keys.last_rows(places)
        table, places = table.take(rows), places.take(rows)
        keys = _Keys(table.column("key"))
        grouping = Grouping.of(places, len(ids))
    return _maps(Fields.of(table), keys.texts(), places, grouping)


def _maps(values: Fields, keys: pa.Array, places: pa.Array, grouping: Grouping) -> Attributes:
    codes = type_codes(values)
    maps = grouping.maps(keys, shared_texts(values, codes))
    others = pc.invert(is_text(codes))
    if not others.true_count:
        return Attributes(maps, pa.nulls(len(maps), SHARED_STRINGS))
    typed = Grouping.of(places.filter(others), len(maps))
    return Attributes(maps, typed.maps(keys.filter(others), shared_names(codes.filter(others))))


class _Keys:
    """The keys of attributes, as indexes of different texts."""

    def __init__(self, column: pa.Array) -> None:
        is_encoded = types.is_dictionary(column.type)
        texts = as_type(column.dictionary if is_encoded else column, pa.string())
        different = texts.dictionary_encode()
        self._texts = different.dictionary
        self._at = column.indices if is_encoded else different.indices
        if is_encoded and len(self._texts) < len(texts):  # has a text twice
            self._at = different.indices.take(self._at)

    def texts(self) -> pa.Array:
        """The key of each row."""
        return pa.DictionaryArray.from_arrays(self._at.cast(pa.int32()), self._texts)

    def any_twice(self, grouping: Grouping) -> bool:
        """Whether a parent has a key twice.

        The indexes of each parent's keys are looked at as one string of bytes: records of one kind
        have the same keys in the same order, so that few such strings differ.
        """
        width = self._at.type.bit_width // 8
        at = self._at if self._at.offset == 0 else pc.add(self._at, scalar(0, self._at.type))
        ends = pc.multiply(grouping.offsets, scalar(width, pa.int32()))
        buffers = [None, ends.buffers()[1], at.buffers()[1]]
        rows = pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)
        return any(_repeats(row, width) for row in rows.unique().to_pylist())

    def last_rows(self, places: pa.Array) -> pa.Array:
        """The last row of each key of each parent, in order."""
        table = pa.table([places, self._at, pa.arange(0, len(places))], names=["at", "key", "row"])
        last = table.group_by(["at", "key"], use_threads=False).aggregate([("row", "max")])
        return last["row_max"].combine_chunks().sort()


def _repeats(keys: bytes, width: int) -> bool:
    parts = keys if width == 1 else {keys[at : at + width] for at in range(0, len(keys), width)}
    return len(set(parts)) * width < len(keys)
