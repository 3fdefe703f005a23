"""Lists out of tables: the rows of a table that belong to each row of another."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.otel.columns import numbers, plain, scalar


def by_parent(table: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """The table sorted by parent, and the parents; rows of one parent keep their order."""
    parents = plain(table.column("parent_id"))
    if pc.any(pc.less(parents.slice(1), parents.slice(0, len(parents) - 1))).as_py():
        order = pc.sort_indices(parents)
        table, parents = table.take(order), parents.take(order)
    return table, parents


def lists_by_parent(parents: pa.Array, items: pa.Array, ids: pa.Array) -> pa.ListArray | None:
    """For each id the items of the parent with that id; `parents` are sorted."""
    if not len(items):
        return None
    if ids.null_count == 0 and ids.equals(numbers(len(ids), ids.type)):
        return pa.ListArray.from_arrays(_offsets(parents, len(ids)), items)
    count = (pc.max(ids).as_py() or 0) + 1
    return pa.ListArray.from_arrays(_offsets(parents, count), items).take(ids)


def _offsets(parents: pa.Array, count: int) -> pa.Array:
    """Where the rows of each parent 0, 1, … up to `count` begin."""
    tally = pc.value_counts(parents)
    place = pc.index_in(numbers(count, parents.type), value_set=tally.field("values"))
    counts = pc.fill_null(tally.field("counts").take(place), scalar(0, pa.int64()))
    return from_zero(pc.cumulative_sum(counts))


def from_zero(ends: pa.Array) -> pa.Array:
    """Offsets of lists: a zero, then where each list ends."""
    return pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])


def starts(array: pa.Array) -> pa.BooleanArray:
    """Where a run of equal values begins."""
    if not len(array):
        return pa.array([], pa.bool_())
    changes = pc.not_equal(array.slice(1), array.slice(0, len(array) - 1))
    return pa.concat_arrays([pa.array([True], pa.bool_()), changes])
