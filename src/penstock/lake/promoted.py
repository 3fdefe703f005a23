"""Promoted attributes: some keys have columns of their own, beside the map that has them all.

A column is small, typed, and prunes files by its bounds; a map is read whole. Which keys they are
is a property of the table, so whoever writes one of its files fills them: the flush, and for
older rows the compaction. Until then they are null in files from before. A file that has the column
keeps what is there, null too: somebody may have changed it.

    http.route                    attr_http_route
    http.response.status_code:int attr_http_response_status_code
    resource:k8s.pod.name         resource_k8s_pod_name
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from penstock.lake.schemas import TABLES
from penstock.model.errors import InvalidSetting
from penstock.otel.columns import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PROPERTY: Final = "penstock.promoted"
PREFIXES: Final = ("attr_", "resource_")
"""Of the names of columns: of a record's attributes, and of its resource's."""
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "int": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
}
_MAP: Final = pa.map_(pa.string(), pa.string())
_SENT_AS: Final = {"int": ["int"], "double": ["double", "int"], "bool": ["bool"]}
_RESOURCE: Final = "resource:"
_BOUNDS: Final = "write.metadata.metrics.column"
_TAKEN: Final = frozenset(name for schema in TABLES.values() for name in schema.names)


@dataclass(frozen=True, slots=True, order=True)
class Promoted:
    """A key with a column of its own."""

    key: str
    kind: str = "string"
    """`string`: the text that the map has. Others: null where the value was sent as another."""
    of_resource: bool = False

    @classmethod
    def parse(cls, text: str) -> Promoted:
        """`[resource:]key[:type]`; InvalidSetting for what is not that."""
        rest, of_resource = text.removeprefix(_RESOURCE), text.startswith(_RESOURCE)
        key, colon, kind = rest.rpartition(":")
        if not colon or kind not in _TYPES:
            key, kind = rest, "string"
        if not key:
            raise InvalidSetting(f"{text!r} names no attribute")
        return cls(key, kind, of_resource)

    def __str__(self) -> str:
        """What `parse` reads."""
        return f"{_RESOURCE if self.of_resource else ''}{self.key}:{self.kind}"

    @property
    def column(self) -> str:
        """What it is called in SQL."""
        name = re.sub(r"[^0-9a-z]+", "_", self.key.lower()).strip("_")
        return f"{PREFIXES[self.of_resource]}{name}"

    @property
    def type(self) -> pa.DataType:
        """Of the column."""
        return _TYPES[self.kind]


def parse_all(texts: Iterable[str]) -> tuple[Promoted, ...]:
    """InvalidSetting where two would have one column, or one that the tables have already."""
    found = tuple(dict.fromkeys(Promoted.parse(text) for text in texts))
    columns = [each.column for each in found]
    for each in found:
        if columns.count(each.column) > 1 or each.column in _TAKEN:
            raise InvalidSetting(f"the attribute {each.key!r} cannot be the column {each.column}")
    return found


def of_properties(properties: Mapping[str, str]) -> tuple[Promoted, ...]:
    """Those of a table."""
    return parse_all(json.loads(properties.get(PROPERTY, "[]")))


def promoted_properties(promoted: Sequence[Promoted]) -> dict[str, str]:
    """Of a table that has these; files are pruned by them."""
    bounds = {f"{_BOUNDS}.{each.column}": "truncate(16)" for each in promoted}
    return {PROPERTY: json.dumps([str(each) for each in promoted]), **bounds}


def with_columns(schema: pa.Schema, promoted: Iterable[Promoted]) -> pa.Schema:
    """The columns of a table that has these too."""
    return pa.schema([*schema, *(pa.field(each.column, each.type) for each in promoted)])


def fill(rows: pa.Table, promoted: Iterable[Promoted]) -> pa.Table:
    """The rows with these columns: those that they do not have are made from their maps.

    Null where a map is not there any more, since somebody dropped it.
    """
    for each in promoted:
        if each.column not in rows.column_names:
            batches = rows.to_batches()
            values = [_values(_maps(batch, each), each) for batch in batches]
            rows = rows.append_column(each.column, pa.chunked_array(values, type=each.type))
    return rows


def _maps(rows: pa.RecordBatch, promoted: Promoted) -> pa.StructArray:
    """`attributes` and `attribute_types` of the rows, or of their resources."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    if promoted.of_resource:
        resources = columns.get("resource", pa.nulls(rows.num_rows, pa.struct([])))
        names = [field.name for field in resources.type]
        columns = dict(zip(names, resources.flatten(), strict=True))
    none = pa.nulls(rows.num_rows, _MAP)
    pair = [columns.get(name, none) for name in ("attributes", "attribute_types")]
    return pa.StructArray.from_arrays(pair, names=["texts", "kinds"])


def _values(maps: pa.StructArray, promoted: Promoted) -> pa.Array:
    texts = _lookup(maps.field("texts"), promoted.key)
    if promoted.kind == "string":
        return texts
    kinds = _lookup(maps.field("kinds"), promoted.key)
    sent = pc.is_in(kinds, value_set=pa.array(_SENT_AS[promoted.kind]))
    return pc.if_else(sent, texts, pa.scalar(None, pa.string())).cast(promoted.type)


def _lookup(maps: pa.MapArray, key: str) -> pa.Array:
    """The value of one key in each map, which has it once at most."""
    if not len(maps):
        return pa.nulls(0, pa.string())
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    found = _equal(maps.keys.slice(first, last - first), key)
    ends = pc.subtract(maps.offsets, pa.scalar(first, pa.int32()))
    owners = pc.list_parent_indices(pa.ListArray.from_arrays(ends, pa.nulls(last - first)))
    places = owners.filter(found)
    at = pc.index_in(pa.arange(0, len(maps)).cast(places.type), value_set=places)
    return plain(maps.items.slice(first, last - first).filter(found)).take(at)


def _equal(keys: pa.Array, key: str) -> pa.BooleanArray:
    if types.is_dictionary(keys.type):
        return pc.fill_null(pc.equal(keys.dictionary, key).take(keys.indices), False)
    return pc.equal(keys, key)
