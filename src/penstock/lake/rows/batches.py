"""Columns become batches of a table, and what many rows share is written out only here.

A resource of 60 kB and 60 000 spans are one request of 4 MB, and 4 GB of rows. So that no more
than a batch of them is ever in memory, shared values stay dictionaries until a batch is cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from penstock.lake.schemas import SHARED_STRINGS, STRINGS
from penstock.otel.columns import scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BATCH_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of shared values in a batch, unless one row has more."""


def cut(columns: Mapping[str, pa.Array], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of the schema in its order; all have the same length."""
    arrays = [columns[field.name] for field in schema]
    count = len(arrays[0])
    rows = _rows_per_batch(arrays, count)
    for start in range(0, count, rows):
        parts = [
            fit(array.slice(start, rows), field.type)
            for array, field in zip(arrays, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(parts, schema=schema)


def fit(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The array as `type_`; dictionaries that it does not have are written out."""
    if array.type.equals(type_):
        return array
    if types.is_dictionary(array.type):
        return fit(array.dictionary, type_).take(array.indices)
    if not types.is_struct(type_):
        return array.cast(type_)
    fields = list(type_)
    parts = [fit(array.field(number), field.type) for number, field in enumerate(fields)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)


def _rows_per_batch(arrays: list[pa.Array], count: int) -> int:
    shared = [_written_out(values) for array in arrays for values in _dictionaries(array)]
    if count * sum(values.nbytes for values in shared) <= BATCH_BYTES:
        return max(count, 1)
    widest = sum(_most_bytes(values) for values in shared)
    return max(BATCH_BYTES // max(widest, 1), 1)


def _written_out(values: pa.Array) -> pa.Array:
    return values.cast(STRINGS) if values.type.equals(SHARED_STRINGS) else values


def _dictionaries(array: pa.Array) -> Iterator[pa.Array]:
    if types.is_dictionary(array.type):
        yield array.dictionary
    elif types.is_struct(array.type):
        for number in range(array.type.num_fields):
            yield from _dictionaries(array.field(number))


def _most_bytes(values: pa.Array) -> int:
    """Those of the largest of the strings or maps."""
    if not types.is_map(values.type):
        return int(pc.max(_bytes(values)).as_py() or 0)
    ends = pc.cumulative_sum(pc.add(_bytes(values.keys), _bytes(values.items)))
    ends = pa.concat_arrays([pa.array([0], pa.int64()), ends]).take(values.offsets)
    return int(pc.max(pc.pairwise_diff(ends)).as_py() or 0)


def _bytes(texts: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.binary_length(texts), scalar(0, pa.int32()))
    return pc.add(lengths.cast(pa.int64()), scalar(8, pa.int64()))
