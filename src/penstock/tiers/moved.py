"""Segments that went to the lake after a query was planned over them, read where they are now.

The lake has the rows of a segment by their offsets, without those that were sent before. Planning
has decided which rows count; whether the lake has these and no others is checked by their number,
so that the rows are the planned ones, or there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.glance import glance
from penstock.lake.identity import identities, of_messages
from penstock.lake.schemas import ORIGIN, TABLES
from penstock.model.errors import DataMoved

if TYPE_CHECKING:
    from penstock.lake.hashing import Hashes
    from penstock.lake.settings import LakeSettings
    from penstock.tiers.segments import Segment


def moved_rows(
    lake: LakeSettings, table: str, segment: Segment, *, since: int, unwanted: Hashes, count: int
) -> pa.Table:
    """The rows of a segment that count, out of commits later than `since`.

    `unwanted` are the identities, within their messages, of those that do not; `count` is how many
    do. DataMoved: the lake has not just these.
    """
    parts = [
        _rows_of(file.path, table, segment)
        for file in glance(lake, table).files
        if file.sequence > since
    ]
    rows = pa.concat_tables([TABLES[table].empty_table(), *parts])
    if len(unwanted) and rows.num_rows:
        keys = of_messages(rows, identities(table, rows))
        rows = rows.filter(pa.array(~_is_in(keys, unwanted)))
    if rows.num_rows != count:
        text = f"{segment.path} was moved while it was to be read: read again"
        raise DataMoved(f"{text} ({rows.num_rows} of its {count} rows are where it was moved to)")
    return rows


def _rows_of(path: str, table: str, segment: Segment) -> pa.Table:
    """Of one file, with the table's columns."""
    *place, offset = (pc.field(name) for name in ORIGIN)
    first = segment.first_offset if segment.begin is None else segment.begin
    chosen = (offset >= (first or 0)) & (offset < (segment.end_offset or 0))
    for field, value in zip(place, segment.place, strict=True):
        chosen &= field == value
    rows = pq.read_table(path, filters=chosen, partitioning=None)
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in TABLES[table]
    ]
    return pa.Table.from_arrays(columns, schema=TABLES[table])


def _is_in(keys: Hashes, others: Hashes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    known = {tuple(key) for key in others.tolist()}
    return np.array([tuple(key) in known for key in keys.tolist()], bool)
