"""Resources and scopes: the two levels around the records of every OTLP request.

OTAP has no tables for them: what they are stands in columns of every record, and their attributes
in tables of their own, under the number that the resource or scope has within the bundle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.slots import MAX_ROOT_RECORDS, RESOURCE_ATTRS, SCOPE_ATTRS
from penstock.otel.attributes import attribute_table
from penstock.otel.columns import Columns, dictionary, without_defaults

if TYPE_CHECKING:
    from penstock.otel.remainder import Remainder


@dataclass(frozen=True, slots=True)
class Containers:
    """The levels of one or more decoded requests."""

    requests: pa.ListArray
    """For each request its resources."""
    scopes: pa.ListArray
    """For each resource its scopes."""
    records: pa.ListArray
    """For each scope its records."""

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Containers:
        """The levels of what `ptars` has decoded."""
        requests = batch.column(0)
        scopes = requests.values.field(1)
        return cls(requests, scopes, scopes.values.field(1))

    @property
    def resources(self) -> pa.StructArray:
        """The resources of all requests: `ResourceSpans`, …."""
        return self.requests.values

    @property
    def too_many(self) -> bool:
        """Whether u16 ids do not suffice."""
        return max(map(len, (self.resources, self.records, self.records.values))) > MAX_ROOT_RECORDS

    @property
    def any_empty(self) -> bool:
        """Whether a resource has no scopes, or a scope no records."""
        return any(
            len(lists) and pc.min(pc.list_value_length(lists)).as_py() == 0
            for lists in (self.scopes, self.records)
        )

    def ends(self) -> tuple[list[int], list[int], list[int]]:
        """After each request: how many resources, scopes and records there were until then."""
        resources = self.requests.offsets
        scopes = self.scopes.offsets.take(resources)
        records = self.records.offsets.take(scopes)
        return tuple(array.to_pylist()[1:] for array in (resources, scopes, records))

    def add_columns(self, columns: Columns) -> None:
        """Adds `resource`, `scope` and `schema_url` of each record.

        Texts that records share are dictionaries: one long URL must not become thousands.
        """
        scope_of = pc.list_parent_indices(self.records)
        resource_of = pc.list_parent_indices(self.scopes).take(scope_of)
        columns.add_struct("resource", self._resource_columns(resource_of))
        columns.add_struct("scope", self._scope_columns(scope_of))
        url = without_defaults(self.records_of("schema_url"))
        if url is not None:
            columns.add("schema_url", dictionary(url).take(scope_of))

    def records_of(self, field: str) -> pa.Array:
        """A field of the level that holds the records: `ScopeSpans`, …."""
        return self.scopes.values.field(field)

    def tables(self, remainder: Remainder) -> dict[int, pa.RecordBatch]:
        """The attributes of resources and scopes."""
        resource = self.resources.field("resource")
        references = resource.field("entity_refs")
        if len(references.values):
            remainder.add_entity_refs(references)
        found = {
            RESOURCE_ATTRS: attribute_table(resource.field("attributes")),
            SCOPE_ATTRS: attribute_table(self.records_of("scope").field("attributes")),
        }
        return {slot: table for slot, table in found.items() if table is not None}

    def _resource_columns(self, places: pa.Array) -> Columns:
        resource = self.resources.field("resource")
        inner = Columns()
        inner.add("id", places.cast(pa.uint16()))
        url = without_defaults(self.resources.field("schema_url"))
        if url is not None:
            inner.add("schema_url", dictionary(url).take(places))
        # Not null, even if 0, where there is a resource: that is how absent ones are known.
        dropped = pc.struct_field(resource, "dropped_attributes_count")
        if dropped.null_count < len(dropped):
            inner.add("dropped_attributes_count", dropped.take(places))
        return inner

    def _scope_columns(self, places: pa.Array) -> Columns:
        scope = self.records_of("scope")
        inner = Columns()
        inner.add("id", places.cast(pa.uint16()))
        # Not null, even if empty, where there is a scope.
        name = pc.struct_field(scope, "name")
        if name.null_count < len(name):
            inner.add("name", dictionary(name).take(places))
        version = without_defaults(scope.field("version"))
        if version is not None:
            inner.add("version", dictionary(version).take(places))
        dropped = without_defaults(scope.field("dropped_attributes_count"))
        if dropped is not None:
            inner.add("dropped_attributes_count", dropped.take(places))
        return inner
