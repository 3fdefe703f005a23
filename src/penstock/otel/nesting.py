"""Records put back into their scopes and resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.slots import RESOURCE_ATTRS, SCOPE_ATTRS
from penstock.otel.attributes import attribute_lists
from penstock.otel.columns import plain, scalar, struct_of
from penstock.otel.lists import starts

if TYPE_CHECKING:
    from penstock.model.bundle import Bundle
    from penstock.otel.remainder import Kept
    from penstock.otel.signals import Signal


def nest(signal: Signal, bundle: Bundle, records: pa.StructArray, kept: Kept) -> pa.RecordBatch:
    """The records as one request for `ptars`.

    Records that follow each other share a scope where the ids of scope and resource are the same.
    """
    root = bundle[signal.root_slot]
    resource, scope = Level(root, "resource"), Level(root, "scope")
    # Indexes: of the first record of each scope, and of the first scope of each resource.
    records_at = pc.indices_nonzero(pc.or_(starts(resource.ids), starts(scope.ids)))
    scopes_at = pc.indices_nonzero(starts(resource.ids.take(records_at)))
    request, outer, inner = signal.field_names
    scopes = {
        "scope": scope.messages(records_at, bundle.get(SCOPE_ATTRS), ("name", "version")),
        inner: _lists(records_at, records),
        "schema_url": _column(root, "schema_url", records_at),
    }
    resource_records = records_at.take(scopes_at)
    references = kept.entity_refs(resource.ids.take(resource_records))
    resources = {
        "resource": resource.messages(
            resource_records, bundle.get(RESOURCE_ATTRS), entity_refs=references
        ),
        outer: _lists(scopes_at, struct_of(scopes)),
        "schema_url": resource.at("schema_url", resource_records),
    }
    everything = _lists(pa.array([0], pa.uint64()), struct_of(resources))
    return pa.RecordBatch.from_arrays([everything], names=[request])


class Level:
    """The columns of a resource or scope in the table of the records."""

    def __init__(self, root: pa.RecordBatch, name: str) -> None:
        self._columns: dict[str, pa.Array] = {}
        if name in root.schema.names:
            column = root.column(name)
            names = [field.name for field in column.type]
            self._columns = dict(zip(names, column.flatten(), strict=True))
        ids = self._columns.get("id", pa.nulls(root.num_rows, pa.uint16()))
        self.ids = pc.fill_null(ids.cast(pa.int32()), scalar(-1, pa.int32()))
        """-1: none."""

    def at(self, name: str, rows: pa.Array) -> pa.Array | None:
        """The values of a column in the given rows."""
        return plain(self._columns[name].take(rows)) if name in self._columns else None

    def messages(
        self,
        rows: pa.Array,
        attributes: pa.RecordBatch | None,
        names: tuple[str, ...] = (),
        **more: pa.ListArray | None,
    ) -> pa.StructArray | None:
        """The resources or scopes of the given rows; absent where they have nothing at all."""
        ids = self.ids.take(rows)
        ids = pc.if_else(pc.less(ids, scalar(0, ids.type)), scalar(None, ids.type), ids)
        fields = {name: self.at(name, rows) for name in (*names, "dropped_attributes_count")}
        lists = {"attributes": attribute_lists(attributes, ids), **more}
        there = pa.repeat(scalar(False, pa.bool_()), len(rows))
        for array in fields.values():
            there = there if array is None else pc.or_(there, array.is_valid())
        for array in lists.values():
            there = there if array is None else pc.or_(there, _nonempty(array))
        return struct_of(fields | lists, pc.invert(there))


def _column(root: pa.RecordBatch, name: str, rows: pa.Array) -> pa.Array | None:
    return plain(root.column(name).take(rows)) if name in root.schema.names else None


def _nonempty(lists: pa.ListArray) -> pa.BooleanArray:
    lengths = pc.fill_null(pc.list_value_length(lists), scalar(0, pa.int32()))
    return pc.greater(lengths, scalar(0, pa.int32()))


def _lists(starts_at: pa.Array, items: pa.StructArray) -> pa.ListArray:
    end = pa.array([len(items)], pa.int32())
    return pa.ListArray.from_arrays(pa.concat_arrays([starts_at.cast(pa.int32()), end]), items)
