"""What OTLP has and OTAP has no column for, so that nothing is lost: a table of Penstock's own.

Rare, so that most bundles have no such table. A row belongs to a row of another table or to a
resource or scope, by its slot and id:

    slot            field          data
    RESOURCE_ATTRS  entity_refs    an `EntityRef` of the resource
    RESOURCE_ATTRS  ResourceSpans  a resource without records: all but its scopes
    SCOPE_ATTRS     ScopeSpans     a scope without records, of the resource `parent_id`
    any other       trace_id, …    an id that is not of 16 or 8 bytes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.slots import RESOURCE_ATTRS, SCOPE_ATTRS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.otel.signals import Signal

ENTITY_REFS: Final = "entity_refs"

_SCHEMA: Final = pa.schema(
    [
        pa.field("slot", pa.uint8(), nullable=False),
        pa.field("id", pa.uint32(), nullable=False),
        pa.field("parent_id", pa.uint32()),
        pa.field("field", pa.dictionary(pa.uint8(), pa.string()), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)


class Remainder:
    """Gathers the rows while a request is decoded."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int | None, str, bytes]] = []

    def add_ids(self, slot: int, field: str, ids: pa.Array, odd: pa.BooleanArray | None) -> None:
        """Keeps those values of an id's field that are odd."""
        if odd is not None:
            rows = pc.indices_nonzero(odd)
            pairs = zip(rows.to_pylist(), ids.take(rows).to_pylist(), strict=True)
            self._rows += [(slot, row, None, field, data) for row, data in pairs]

    def add_entity_refs(self, lists: pa.ListArray) -> None:
        """Keeps the entity references of the resources."""
        pairs = zip(
            pc.list_parent_indices(lists).to_pylist(), lists.values.to_pylist(), strict=True
        )
        self._rows += [(RESOURCE_ATTRS, row, None, ENTITY_REFS, data) for row, data in pairs]

    def add_empty(self, signal: Signal, encoded: bytes) -> None:
        """Keeps the resources and scopes of a request that hold no records."""
        request = signal.request_class.FromString(encoded)
        scope_number = 0
        for number, (resource, scopes) in enumerate(_containers(request)):
            records = 0
            for scope in scopes:
                here = len(_second(scope))
                records += here
                if not here:
                    name, data = scope.DESCRIPTOR.name, scope.SerializeToString()
                    self._rows.append((SCOPE_ATTRS, scope_number, number, name, data))
                scope_number += 1
            if not records:
                del scopes[:]
                name, data = resource.DESCRIPTOR.name, resource.SerializeToString()
                self._rows.append((RESOURCE_ATTRS, number, None, name, data))

    def table(self) -> pa.RecordBatch | None:
        """The table, if there is anything in it."""
        if not self._rows:
            return None
        rows = sorted(self._rows, key=lambda row: (row[0], row[1]))
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


class Kept:
    """What such a table holds, for encoding."""

    def __init__(self, table: pa.RecordBatch | None) -> None:
        self._found: dict[tuple[int, str], list[dict[str, Any]]] = {}
        for row in table.to_pylist() if table is not None else ():
            self._found.setdefault((row["slot"], row["field"]), []).append(row)

    def restore_ids(self, slot: int, field: str, rows: pa.Array, ids: pa.Array) -> pa.Array:
        """A binary column with its odd values back in their places; `rows` has the rows' ids."""
        odd = {row["id"]: row["data"] for row in self._found.get((slot, field), ())}
        if not odd:
            return ids
        pairs = zip(rows.to_pylist(), ids.to_pylist(), strict=True)
        return pa.array([odd.get(row, data) for row, data in pairs], ids.type)

    def entity_refs(self, resources: pa.Array) -> pa.ListArray | None:
        """The encoded references of the resources with these ids."""
        found: dict[int, list[bytes]] = {}
        for row in self._found.get((RESOURCE_ATTRS, ENTITY_REFS), ()):
            found.setdefault(row["id"], []).append(row["data"])
        lists = [found.get(number, ()) for number in resources.to_pylist()]
        return pa.array(lists, pa.list_(pa.binary())) if found else None

    def with_empty(self, signal: Signal, encoded: bytes) -> bytes:
        """The request with its resources and scopes without records in their places."""
        outer: Any = signal.request_class.DESCRIPTOR.fields[0].message_type
        inner = outer.fields_by_number[2].message_type
        resources = self._found.get((RESOURCE_ATTRS, outer.name), ())
        scopes = self._found.get((SCOPE_ATTRS, inner.name), ())
        if not (resources or scopes):
            return encoded
        request = signal.request_class.FromString(encoded)
        _insert(_first(request), resources)
        by_resource: dict[int, list[dict[str, Any]]] = {}
        for row in scopes:
            by_resource.setdefault(row["parent_id"], []).append(row)
        first_scope = 0
        for number, (_, present) in enumerate(_containers(request)):
            _insert(present, by_resource.get(number, ()), first_scope)
            first_scope += len(present)
        return request.SerializeToString()


def _insert(messages: Any, rows: Iterable[dict[str, Any]], first: int = 0) -> None:
    """Puts messages between the others, each where its id says; the rows are sorted by id."""
    for row in rows:
        new = messages.add()
        new.MergeFromString(row["data"])
        messages.insert(row["id"] - first, new)
        del messages[-1]


def _containers(request: Any) -> Iterator[tuple[Any, Any]]:
    for resource in _first(request):
        yield resource, _second(resource)


def _first(message: Any) -> Any:
    return getattr(message, message.DESCRIPTOR.fields[0].name)


def _second(message: Any) -> Any:
    return getattr(message, message.DESCRIPTOR.fields_by_number[2].name)
