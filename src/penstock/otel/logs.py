"""Log records as OTAP tables, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.model import slots
from penstock.otel.attributes import attribute_lists, attribute_table
from penstock.otel.columns import SPAN_ID, TIME, TRACE_ID, Column, Columns, numbers, struct_of
from penstock.otel.records import add_fields, message_fields, row_ids
from penstock.otel.values import add_values, value_structs

if TYPE_CHECKING:
    from penstock.model.bundle import Bundle
    from penstock.otel.containers import Containers
    from penstock.otel.remainder import Kept, Remainder

LOG_RECORD: Final = (
    Column("time_unix_nano", TIME),
    Column("observed_time_unix_nano", TIME),
    Column("trace_id", TRACE_ID),
    Column("span_id", SPAN_ID),
    Column("severity_number", pa.int32()),
    Column("severity_text", pa.string(), encoded=True),
    Column("event_name", pa.string(), encoded=True),
    Column("dropped_attributes_count", pa.uint32()),
    Column("flags", pa.uint32()),
)


def log_tables(containers: Containers, remainder: Remainder) -> dict[int, pa.RecordBatch | None]:
    """The tables of log records and of their attributes."""
    records = containers.records.values
    columns = Columns()
    columns.add("id", numbers(len(records), pa.uint16()))
    containers.add_columns(columns)
    add_fields(columns, slots.LOGS, records, LOG_RECORD, remainder)
    _add_body(columns, records.field("body"))
    return {
        slots.LOGS: columns.batch(),
        slots.LOG_ATTRS: attribute_table(records.field("attributes")),
    }


def log_messages(bundle: Bundle, type_: pa.StructType, kept: Kept) -> pa.StructArray | None:
    """The log records of the tables, as messages of `type_` for `ptars`."""
    table = bundle[slots.LOGS]
    fields = message_fields(slots.LOGS, table, LOG_RECORD, type_, kept)
    if "body" in table.schema.names:
        fields["body"] = value_structs(table.column("body"))
    fields["attributes"] = attribute_lists(bundle.get(slots.LOG_ATTRS), row_ids(table))
    return struct_of(fields) or _nothing(table.num_rows)


def _nothing(count: int) -> pa.StructArray:
    return struct_of({"flags": pa.nulls(count, pa.uint32())})


def _add_body(columns: Columns, body: pa.StructArray) -> None:
    if body.null_count < len(body):
        inner = Columns()
        add_values(inner, body, mark_absent=False)
        columns.add_struct("body", inner, body.is_null() if body.null_count else None)
