"""Rows of a table go to the rows of another that they belong to.

Tables from `penstock.otel` have parents numbered 0, 1, … and children in that order, so that lists
are offsets into the children as they stand. Other tables are brought into that order first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.rows.batches import fit
from penstock.lake.schemas import SHARED_STRINGS, list_of, with_shared_strings
from penstock.otel.columns import numbers, plain, scalar
from penstock.otel.lists import from_zero

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PLACE: Final = pa.int64()


@dataclass(frozen=True, slots=True)
class Grouping:
    """Where the children of each parent begin."""

    offsets: pa.Array
    missing: pa.BooleanArray | None
    """The parents without children, whose lists are null; None: all have some."""

    @classmethod
    def of(cls, places: pa.Array, count: int) -> Grouping:
        """Of children whose parents, out of `count`, are at these places; in order."""
        runs = pc.run_end_encode(places)
        if len(runs.values) == count:
            return cls(from_zero(runs.run_ends), None)
        run = pc.index_in(numbers(count, places.type), value_set=runs.values)
        ends = pc.fill_null_forward(runs.run_ends.take(run))
        return cls(from_zero(pc.fill_null(ends, scalar(0, ends.type))), run.is_null())

    def lists(self, items: pa.Array) -> pa.ListArray:
        """The children as lists."""
        type_ = list_of(items.type)
        return pa.ListArray.from_arrays(self.offsets, items, type=type_, mask=self.missing)

    def maps(self, keys: pa.Array, values: pa.Array) -> pa.MapArray:
        """The children as maps of shared strings."""
        return pa.MapArray.from_arrays(
            self.offsets, keys, values, type=SHARED_STRINGS, mask=self.missing
        )


def place(table: pa.RecordBatch, ids: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
    """The table by the places of its parents in `ids`, and these; without those of no parent.

    Rows of one parent keep their order.
    """
    places = plain(table.column("parent_id"))
    if not _is_count(ids):
        places = pc.index_in(places.cast(_PLACE), value_set=ids.cast(_PLACE), skip_nulls=True)
    table, places = _sorted(table, places)
    last = len(places) - places.null_count
    if last and places[last - 1].as_py() >= len(ids):
        last = pc.less(places, pa.scalar(len(ids), places.type)).true_count
    return table.slice(0, last), places.slice(0, last)


def _is_count(ids: pa.Array) -> bool:
    """Whether ids are 0, 1, …."""
    return bool(ids.null_count == 0 and ids.equals(numbers(len(ids), ids.type)))


def _sorted(table: pa.RecordBatch, places: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
    falls = pc.less(places.slice(1), places.slice(0, max(len(places) - 1, 0)))
    if not (places.null_count or falls.true_count):
        return table, places
    order = pc.sort_indices(places)  # stable, nulls last
    return table.take(order), places.take(order)


def child_lists(
    table: pa.RecordBatch | None,
    ids: pa.Array,
    type_: pa.StructType,
    columns: Callable[[pa.RecordBatch], Mapping[str, pa.Array]],
) -> pa.ListArray:
    """The records of a table as lists of the parents with these ids; null where there are none.

    Their strings are shared.
    """
    type_ = with_shared_strings(type_)
    if table is None or not table.num_rows:
        return pa.nulls(len(ids), list_of(type_))
    table, places = place(table, ids)
    held = columns(table)
    arrays = [fit(held[field.name], field.type) for field in type_]
    records = pa.StructArray.from_arrays(arrays, fields=list(type_))
    return Grouping.of(places, len(ids)).lists(records)
