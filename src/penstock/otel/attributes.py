"""Attribute tables: one row for each key of each parent."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.otel.columns import Columns, dictionary, plain
from penstock.otel.lists import by_parent, lists_by_parent
from penstock.otel.values import add_values, value_structs

_SMALL = pa.uint16()
_LARGE = pa.uint32()


def attribute_table(lists: pa.ListArray, parent: pa.DataType = _SMALL) -> pa.RecordBatch | None:
    """The table of the attributes of parents 0, 1, …; None where they have none."""
    pairs = lists.values
    if not len(pairs):
        return None
    columns = Columns()
    columns.add("parent_id", pc.list_parent_indices(lists).cast(parent), required=True)
    columns.add("key", dictionary(pairs.field("key")), required=True)
    add_values(columns, pairs.field("value"), mark_absent=True)
    return columns.batch()


def attribute_lists(table: pa.RecordBatch | None, ids: pa.Array) -> pa.ListArray | None:
    """The attributes of the parents with these ids, as messages for `ptars`."""
    if table is None:
        return None
    table, parents = by_parent(table)
    pairs = pa.StructArray.from_arrays(
        [plain(table.column("key")), value_structs(table)], names=["key", "value"]
    )
    return lists_by_parent(parents, pairs, ids)
