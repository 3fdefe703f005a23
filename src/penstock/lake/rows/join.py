"""Several bundles as one, since a small bundle takes as many calls as a large one.

Rows follow each other, and ids count on. That needs ids which are the numbers of rows, as those of
`penstock.otel` are; bundles with others are not joined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.rows.concat import concat, owners
from penstock.model import slots
from penstock.model.bundle import Bundle
from penstock.otel.columns import numbers, plain, scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

_ID: Final = pa.uint32()
_CONTAINERS: Final = {"resource": slots.RESOURCE_ATTRS, "scope": slots.SCOPE_ATTRS}
_CONTAINER_IDS: Final = 65_536
"""A bundle has no more resources or scopes."""
_NOT_JOINED: Final = {slots.REMAINDER, slots.RAW_LOGS, slots.RAW_TRACES, slots.RAW_METRICS}
_NOT_NEEDED: Final = {slots.MESSAGE_RECORDS, slots.METRIC_ATTRS}
_PARENTS: Final = {
    slots.LOG_ATTRS: slots.LOGS,
    slots.SPAN_ATTRS: slots.SPANS,
    slots.SPAN_EVENTS: slots.SPANS,
    slots.SPAN_LINKS: slots.SPANS,
    slots.SPAN_EVENT_ATTRS: slots.SPAN_EVENTS,
    slots.SPAN_LINK_ATTRS: slots.SPAN_LINKS,
    slots.NUMBER_DATA_POINTS: slots.UNIVARIATE_METRICS,
    slots.SUMMARY_DATA_POINTS: slots.UNIVARIATE_METRICS,
    slots.HISTOGRAM_DATA_POINTS: slots.UNIVARIATE_METRICS,
    slots.EXP_HISTOGRAM_DATA_POINTS: slots.UNIVARIATE_METRICS,
    slots.NUMBER_DP_ATTRS: slots.NUMBER_DATA_POINTS,
    slots.SUMMARY_DP_ATTRS: slots.SUMMARY_DATA_POINTS,
    slots.HISTOGRAM_DP_ATTRS: slots.HISTOGRAM_DATA_POINTS,
    slots.EXP_HISTOGRAM_DP_ATTRS: slots.EXP_HISTOGRAM_DATA_POINTS,
    slots.NUMBER_DP_EXEMPLARS: slots.NUMBER_DATA_POINTS,
    slots.HISTOGRAM_DP_EXEMPLARS: slots.HISTOGRAM_DATA_POINTS,
    slots.EXP_HISTOGRAM_DP_EXEMPLARS: slots.EXP_HISTOGRAM_DATA_POINTS,
    slots.NUMBER_DP_EXEMPLAR_ATTRS: slots.NUMBER_DP_EXEMPLARS,
    slots.HISTOGRAM_DP_EXEMPLAR_ATTRS: slots.HISTOGRAM_DP_EXEMPLARS,
    slots.EXP_HISTOGRAM_DP_EXEMPLAR_ATTRS: slots.EXP_HISTOGRAM_DP_EXEMPLARS,
}


def can_join(bundle: Bundle) -> bool:
    """Whether `join` may be able to."""
    return _NOT_JOINED.isdisjoint(bundle.slots)


def join(bundles: Sequence[Bundle]) -> Bundle | None:
    """One bundle with the rows of all, or None. It no longer tells messages from each other."""
    held = sorted(set().union(*bundles) - _NOT_NEEDED)
    try:
        return Bundle.trusted({slot: _Slot(bundles, slot).table() for slot in held}, 0)
    except (_CannotJoin, KeyError, pa.ArrowException):
        return None


class _CannotJoin(Exception):
    """Ids are not the numbers of rows."""


class _Slot:
    """The tables that bundles have in one slot."""

    def __init__(self, bundles: Sequence[Bundle], slot: int) -> None:
        self._bundles = bundles
        self._slot = slot
        self._counts = _counts(bundles, slot)
        self._bundle_of_row = owners(self._counts).cast(_ID)

    def table(self) -> pa.RecordBatch:
        """All of them as one."""
        tables = [bundle[self._slot] for bundle in self._bundles if self._slot in bundle]
        whole = pa.RecordBatch.from_struct_array(
            concat([table.to_struct_array() for table in tables])
        )
        columns = dict(zip(whole.schema.names, whole.columns, strict=True))
        for name, column in columns.items():
            columns[name] = self._counted_on(name, column)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _counted_on(self, name: str, column: pa.Array) -> pa.Array:
        match name:
            case "id":
                return self._ids(_plain_ids(column))
            case "parent_id" if self._slot in _CONTAINERS.values():
                return self._container_ids(_plain_ids(column))
            case "parent_id":
                return self._parents(_plain_ids(column))
            case "resource" | "scope":
                return self._containers(column)
        return column

    def _ids(self, ids: pa.Array) -> pa.Array:
        every = numbers(len(ids), _ID)
        if not pc.add(ids, self._per_row(_starts(self._counts))).equals(every):
            raise _CannotJoin
        return every

    def _parents(self, parents: pa.Array) -> pa.Array:
        counts = _counts(self._bundles, _PARENTS[self._slot])
        if pc.less(parents, self._per_row(counts)).true_count < len(parents):
            raise _CannotJoin
        return pc.add(parents, self._per_row(_starts(counts)))

    def _containers(self, column: pa.StructArray) -> pa.StructArray:
        fields = list(column.type)
        arrays = [
            self._container_ids(_plain_ids(array)) if field.name == "id" else array
            for field, array in zip(fields, column.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, names=[field.name for field in fields])

    def _container_ids(self, ids: pa.Array) -> pa.Array:
        if pc.any(pc.greater_equal(ids, scalar(_CONTAINER_IDS, _ID))).as_py():
            raise _CannotJoin
        return pc.add(ids, pc.multiply(self._bundle_of_row, scalar(_CONTAINER_IDS, _ID)))

    def _per_row(self, values: pa.Array) -> pa.Array:
        """What each bundle has, for each row."""
        return values.take(self._bundle_of_row)


def _plain_ids(column: pa.Array) -> pa.Array:
    return plain(column).cast(_ID)


def _counts(bundles: Sequence[Bundle], slot: int) -> pa.Array:
    tables = [bundle.get(slot) for bundle in bundles]
    return pa.array([0 if table is None else table.num_rows for table in tables], _ID)


def _starts(counts: pa.Array) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(counts), counts)
