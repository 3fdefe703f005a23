"""Spans, events and links as OTAP tables, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model import slots
from penstock.otel.attributes import attribute_lists, attribute_table
from penstock.otel.columns import (
    SPAN_ID,
    TIME,
    TRACE_ID,
    Column,
    Columns,
    When,
    numbers,
    plain,
    struct_of,
)
from penstock.otel.records import (
    Kind,
    add_fields,
    child_lists,
    child_tables,
    message_fields,
    row_ids,
)

if TYPE_CHECKING:
    from penstock.model.bundle import Bundle
    from penstock.otel.containers import Containers
    from penstock.otel.remainder import Kept, Remainder

SPAN: Final = (
    Column("trace_id", TRACE_ID, When.NEVER, required=True),
    Column("span_id", SPAN_ID, When.NEVER, required=True),
    Column("trace_state", pa.string()),
    Column("parent_span_id", SPAN_ID),
    Column("name", pa.string(), When.NEVER, required=True),
    Column("kind", pa.int32()),
    Column("dropped_attributes_count", pa.uint32()),
    Column("dropped_events_count", pa.uint32()),
    Column("dropped_links_count", pa.uint32()),
    Column("flags", pa.uint32()),
)
EVENT: Final = Kind(
    slots.SPAN_EVENTS,
    (
        Column("time_unix_nano", TIME),
        Column("name", pa.string(), When.NEVER, required=True),
        Column("dropped_attributes_count", pa.uint32()),
    ),
    slots.SPAN_EVENT_ATTRS,
)
LINK: Final = Kind(
    slots.SPAN_LINKS,
    (
        Column("trace_id", TRACE_ID, When.NEVER, required=True),
        Column("span_id", SPAN_ID, When.NEVER, required=True),
        Column("trace_state", pa.string()),
        Column("dropped_attributes_count", pa.uint32()),
        Column("flags", pa.uint32()),
    ),
    slots.SPAN_LINK_ATTRS,
)
_MESSAGE: Final = Column("status_message", pa.string(), encoded=True)
_NANOS: Final = pa.int64()


def span_tables(containers: Containers, remainder: Remainder) -> dict[int, pa.RecordBatch | None]:
    """The tables of spans and of what they hold."""
    spans = containers.records.values
    columns = Columns()
    columns.add("id", numbers(len(spans), pa.uint16()))
    containers.add_columns(columns)
    _add_times(columns, spans)
    add_fields(columns, slots.SPANS, spans, SPAN, remainder)
    _add_status(columns, spans.field("status"))
    return {
        slots.SPANS: columns.batch(),
        slots.SPAN_ATTRS: attribute_table(spans.field("attributes")),
        **child_tables(EVENT, remainder, spans.field("events")),
        **child_tables(LINK, remainder, spans.field("links")),
    }


def span_messages(bundle: Bundle, type_: pa.StructType, kept: Kept) -> pa.StructArray | None:
    """The spans of the tables, as messages of `type_` for `ptars`."""
    table = bundle[slots.SPANS]
    ids = row_ids(table)
    start = plain(table.column("start_time_unix_nano")).view(_NANOS)
    duration = plain(table.column("duration_time_unix_nano")).view(_NANOS)
    events, links = type_.field("events").type, type_.field("links").type
    fields = {
        "start_time_unix_nano": start.view(pa.uint64()),
        "end_time_unix_nano": pc.add(start, duration).view(pa.uint64()),
        **message_fields(slots.SPANS, table, SPAN, type_, kept),
        "status": _status_messages(table),
        "attributes": attribute_lists(bundle.get(slots.SPAN_ATTRS), ids),
        "events": child_lists(EVENT, bundle, events, ids, kept),
        "links": child_lists(LINK, bundle, links, ids, kept),
    }
    return struct_of(fields)


def _add_times(columns: Columns, spans: pa.StructArray) -> None:
    start = spans.field("start_time_unix_nano").view(_NANOS)
    end = spans.field("end_time_unix_nano").view(_NANOS)
    columns.add("start_time_unix_nano", start.view(TIME), required=True)
    # It may overflow; it overflows back when it is added to the start again.
    duration = pc.subtract(end, start).view(pa.duration("ns"))
    columns.add("duration_time_unix_nano", duration, required=True)


def _add_status(columns: Columns, status: pa.StructArray) -> None:
    if status.null_count < len(status):
        inner = Columns()
        inner.add("code", pc.struct_field(status, "code"))
        inner.add(_MESSAGE.name, _MESSAGE.decode(status.field("message")))
        columns.add_struct("status", inner, status.is_null() if status.null_count else None)


def _status_messages(table: pa.RecordBatch) -> pa.StructArray | None:
    if "status" not in table.schema.names:
        return None
    status = table.column("status")
    held = {field.name: array for field, array in zip(status.type, status.flatten(), strict=True)}
    names = {"code": "code", _MESSAGE.name: "message"}
    fields = {field: plain(held[name]) for name, field in names.items() if name in held}
    return struct_of(fields, status.is_null())
