"""Tables of records: a row for each message of one kind, with its fields as columns.

Most kinds are held by records of another kind (events by spans, exemplars by data points): their
tables have a `parent_id`, and their attributes a table of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from penstock.otel.attributes import attribute_lists, attribute_table
from penstock.otel.columns import Column, Columns, fixed_width, numbers, plain, struct_of
from penstock.otel.lists import by_parent, lists_by_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.model.bundle import Bundle
    from penstock.otel.remainder import Kept, Remainder

_ROOT_ID: Final = pa.uint16()


@dataclass(frozen=True, slots=True)
class Kind:
    """Records that are held by others."""

    slot: int
    columns: tuple[Column, ...]
    attributes_slot: int
    attributes_field: str = "attributes"
    parent: pa.DataType = _ROOT_ID


def add_fields(
    columns: Columns,
    slot: int,
    messages: pa.StructArray,
    fields: Iterable[Column],
    remainder: Remainder,
) -> None:
    """Adds a column for each field that has values."""
    for field in fields:
        array = messages.field(field.source)
        if _is_id(field):
            column, odd = fixed_width(array, field.type, required=field.required)
            remainder.add_ids(slot, field.source, array, odd)
        else:
            column = field.decode(array)
        columns.add(field.name, column, required=field.required)


def message_fields(
    slot: int, table: pa.RecordBatch, fields: Iterable[Column], type_: pa.StructType, kept: Kept
) -> dict[str, pa.Array | None]:
    """The fields that have a column, as `ptars` takes them for messages of `type_`."""
    found: dict[str, pa.Array | None] = {}
    for field in fields:
        wanted = type_.field(field.source).type
        if _is_id(field):
            ids = _ids_or_none(table, field.name, wanted)
            found[field.source] = kept.restore_ids(slot, field.source, row_ids(table), ids)
        elif field.name in table.schema.names:
            found[field.source] = field.encode(table.column(field.name), wanted)
    return found


def _is_id(field: Column) -> bool:
    return field.type is not None and types.is_fixed_size_binary(field.type)


def _ids_or_none(table: pa.RecordBatch, name: str, type_: pa.DataType) -> pa.Array:
    if name not in table.schema.names:  # all of them may be odd
        return pa.nulls(table.num_rows, type_)
    return plain(table.column(name)).cast(type_)


def row_ids(table: pa.RecordBatch) -> pa.Array:
    """The ids of the rows, null for those that nothing refers to."""
    if "id" in table.schema.names:
        return table.column("id")
    return pa.nulls(table.num_rows, pa.uint32())


def child_tables(
    kind: Kind, remainder: Remainder, *lists: pa.ListArray
) -> dict[int, pa.RecordBatch | None]:
    """The table of the records in the lists of parents 0, 1, …, and that of their attributes."""
    records = children(*lists)
    if not len(records):
        return {}
    columns = Columns()
    columns.add("id", numbers(len(records), pa.uint32()))
    parents = pa.concat_arrays([pc.list_parent_indices(each) for each in lists])
    columns.add("parent_id", parents.cast(kind.parent), required=True)
    add_fields(columns, kind.slot, records, kind.columns, remainder)
    attributes = attribute_table(records.field(kind.attributes_field), pa.uint32())
    return {kind.slot: columns.batch(), kind.attributes_slot: attributes}


def children(*lists: pa.ListArray) -> pa.StructArray:
    """The records in lists of several kinds, one kind after the other."""
    held = [each.values for each in lists if len(each.values)]
    return pa.concat_arrays(held) if len(held) > 1 else (held or [lists[0].values])[0]


def child_lists(
    kind: Kind,
    bundle: Bundle,
    type_: pa.ListType,
    ids: pa.Array,
    kept: Kept,
    more: Callable[[pa.RecordBatch, pa.StructType], Mapping[str, pa.Array | None]] | None = None,
) -> pa.ListArray | None:
    """For each id of a parent its records, as messages for `ptars`."""
    table = bundle.get(kind.slot)
    if table is None or not table.num_rows:
        return None
    table, parents = by_parent(table)
    fields = message_fields(kind.slot, table, kind.columns, type_.value_type, kept)
    attributes = bundle.get(kind.attributes_slot)
    fields[kind.attributes_field] = attribute_lists(attributes, row_ids(table))
    if more:
        fields |= more(table, type_.value_type)
    return lists_by_parent(parents, struct_of(fields), ids)
