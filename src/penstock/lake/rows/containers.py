"""Resources and scopes of the records, and what names the service.

Few are shared by many records, so that their columns are dictionaries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.rows.attributes import attributes_of
from penstock.lake.schemas import STRINGS
from penstock.model.slots import RESOURCE_ATTRS, SCOPE_ATTRS
from penstock.otel.columns import scalar

if TYPE_CHECKING:
    from penstock.lake.rows.fields import Fields
    from penstock.lake.rows.tables import Tables

_SERVICE: Final = "service.name"
_DROPPED: Final = "dropped_attributes_count"


def container_columns(tables: Tables, root: Fields) -> dict[str, pa.Array]:
    """The columns of the records in the root table."""
    resource = _Container(tables.get(RESOURCE_ATTRS), root.inner("resource"))
    scope = _Container(tables.get(SCOPE_ATTRS), root.inner("scope"))
    return {
        "service_name": resource.attribute(_SERVICE),
        "resource": resource.structs(),
        "instrumentation_scope": scope.structs("name", "version"),
        "resource_schema_url": resource.fields.text("schema_url"),
        "scope_schema_url": root.text("schema_url"),
    }


class _Container:
    """The resource or scope of each record."""

    def __init__(self, attributes: pa.RecordBatch | None, fields: Fields) -> None:
        self.fields = fields
        numbers = fields.plain("id", pa.uint32()).dictionary_encode()
        self._at = numbers.indices
        self._attributes = attributes_of(attributes, numbers.dictionary)

    def attribute(self, key: str) -> pa.Array:
        """The text of one attribute."""
        texts = self._attributes.texts.cast(STRINGS)
        return self._shared(pc.map_lookup(texts, pa.scalar(key), "first"))

    def structs(self, *names: str) -> pa.Array:
        """With its attributes and these fields; null where none was sent."""
        columns = {name: self.fields.text(name) for name in names}
        held = self._attributes.columns()
        columns |= {name: self._shared(maps) for name, maps in held.items()}
        columns[_DROPPED] = self.fields.positive(_DROPPED)
        mask = self._missing((*names, _DROPPED))
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=mask)

    def _missing(self, names: tuple[str, ...]) -> pa.BooleanArray:
        # Zeros and empty strings are not missing: the one that has them was sent.
        there = self._attributes.texts.is_valid().take(self._at)
        there = pc.fill_null(there, scalar(False, pa.bool_()))
        for column in filter(None, map(self.fields.get, names)):
            there = pc.or_(there, column.is_valid())
        return pc.invert(there)

    def _shared(self, values: pa.Array) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(self._at, values)
