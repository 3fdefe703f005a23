"""The rows of `logs`: one for each log record, in the order of the bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.rows.attributes import attributes_of
from penstock.lake.rows.containers import container_columns
from penstock.lake.rows.fields import Fields, days, micros, non_zero
from penstock.lake.rows.ids import hex_ids
from penstock.lake.rows.origin import constants
from penstock.lake.rows.values import type_codes, type_names, value_texts
from penstock.model import slots
from penstock.otel.records import row_ids

if TYPE_CHECKING:
    from penstock.lake.rows.tables import Tables


def log_columns(tables: Tables) -> dict[str, pa.Array]:
    """The columns of the table; what many records share has a dictionary."""
    root = tables.bundle[slots.LOGS]
    logs = Fields.of(root)
    return {
        **_times(logs),
        "trace_id": hex_ids(root, slots.LOGS, "trace_id", tables.kept),
        "span_id": hex_ids(root, slots.LOGS, "span_id", tables.kept),
        "flags": logs.positive("flags"),
        "severity_number": non_zero(logs.plain("severity_number", pa.int32())),
        "severity_text": logs.text("severity_text"),
        **_body(logs.inner("body")),
        "event_name": logs.text("event_name"),
        **attributes_of(tables.get(slots.LOG_ATTRS), row_ids(root)).columns(),
        "dropped_attributes_count": logs.positive("dropped_attributes_count"),
        **container_columns(tables, logs),
        **constants(tables.origin, logs.count),
        "_offset": tables.offsets,
    }


def _times(logs: Fields) -> dict[str, pa.Array]:
    """A record that does not say when it happened did so when it was observed."""
    observed = micros(logs.bits("observed_time_unix_nano"))
    time = pc.coalesce(micros(logs.bits("time_unix_nano")), observed)
    return {
        "time": time,
        "observed_time": observed,
        "date": days(time),
        "time_unix_nano": logs.nanos("time_unix_nano"),
        "observed_time_unix_nano": logs.nanos("observed_time_unix_nano"),
    }


def _body(body: Fields) -> dict[str, pa.Array]:
    codes = type_codes(body)
    return {"body": value_texts(body, codes), "body_type": type_names(codes)}
