"""Ids as lower-case hex."""

from __future__ import annotations

from binascii import hexlify
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

from penstock.lake.rows.fields import as_type
from penstock.otel.columns import plain
from penstock.otel.records import row_ids

if TYPE_CHECKING:
    from penstock.otel.remainder import Kept


def hex_ids(table: pa.RecordBatch, slot: int, name: str, kept: Kept | None) -> pa.Array:
    """The ids of the column, and those of an odd length that were kept; null for empty ones."""
    there = name in table.schema.names
    ids = plain(table.column(name)) if there else pa.nulls(table.num_rows, pa.binary())
    if kept is not None:
        ids = kept.restore_ids(slot, name, row_ids(table), as_type(ids, pa.binary()))
    if types.is_fixed_size_binary(ids.type):
        return _hex(ids)
    if ids.null_count == len(ids):
        return pa.nulls(len(ids), pa.string())
    return pa.array([data.hex() if data else None for data in ids.to_pylist()], pa.string())


def _hex(ids: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """All of them at once: what is before a slice as well, so that its validity need not move."""
    width, end = ids.type.byte_width, ids.offset + len(ids)
    valid, values = ids.buffers()
    data = pa.py_buffer(hexlify(memoryview(values)[: width * end]))
    offsets = pa.arange(0, 2 * width * end + 1, 2 * width).cast(pa.int32())
    buffers = [valid, offsets.buffers()[1], data]
    return pa.Array.from_buffers(pa.string(), len(ids), buffers, offset=ids.offset)
