"""Rewrites the batches of a stream so that each dictionary is the same in all of them.

An Arrow IPC file then needs no deltas, and any chunk of it can be read without the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.segment.dictionaries import Path, dictionary_at, dictionary_paths
from penstock.segment.nested import child_fields, children, with_children, with_fields
from penstock.segment.vocabulary import Plain, Vocabulary, find_vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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
        """The batches in their order."""
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
