"""The rows of `spans`: one for each span, in the order of the bundle."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.rows.attributes import attributes_of
from penstock.lake.rows.containers import container_columns
from penstock.lake.rows.fields import Fields, days, micros, named, nanos, null_unless
from penstock.lake.rows.ids import hex_ids
from penstock.lake.rows.origin import constants
from penstock.lake.rows.parents import child_lists
from penstock.lake.schemas import EVENT, LINK
from penstock.model import slots
from penstock.otel.columns import scalar
from penstock.otel.records import row_ids

if TYPE_CHECKING:
    from penstock.lake.rows.tables import Tables

_KINDS: Final = {
    0: None,
    1: "SPAN_KIND_INTERNAL",
    2: "SPAN_KIND_SERVER",
    3: "SPAN_KIND_CLIENT",
    4: "SPAN_KIND_PRODUCER",
    5: "SPAN_KIND_CONSUMER",
}
_STATUS_CODES: Final = {0: "STATUS_CODE_UNSET", 1: "STATUS_CODE_OK", 2: "STATUS_CODE_ERROR"}
_NANOS: Final = pa.int64()


def span_columns(tables: Tables) -> dict[str, pa.Array]:
    """The columns of the table; what many spans share has a dictionary."""
    root = tables.bundle[slots.SPANS]
    spans, ids = Fields.of(root), row_ids(root)
    hexed = partial(hex_ids, root, slots.SPANS, kept=tables.kept)
    status = spans.inner("status")
    events, links = tables.get(slots.SPAN_EVENTS), tables.get(slots.SPAN_LINKS)
    return {
        **_times(spans),
        "trace_id": hexed("trace_id"),
        "span_id": hexed("span_id"),
        "parent_span_id": hexed("parent_span_id"),
        "trace_state": spans.text("trace_state"),
        "flags": spans.positive("flags"),
        "name": spans.text("name"),
        "kind": named(spans.plain("kind", pa.int32()), _KINDS),
        "status_code": named(status.plain("code", pa.int32()), _STATUS_CODES),
        "status_message": status.text("status_message"),
        **attributes_of(tables.get(slots.SPAN_ATTRS), ids).columns(),
        "events": child_lists(events, ids, EVENT, partial(_events, tables)),
        "links": child_lists(links, ids, LINK, partial(_links, tables)),
        "dropped_attributes_count": spans.positive("dropped_attributes_count"),
        "dropped_events_count": spans.positive("dropped_events_count"),
        "dropped_links_count": spans.positive("dropped_links_count"),
        **container_columns(tables, spans),
        **constants(tables.origin, spans.count),
        "_offset": tables.offsets,
    }


def _times(spans: Fields) -> dict[str, pa.Array]:
    start, duration = spans.bits("start_time_unix_nano"), spans.bits("duration_time_unix_nano")
    end = pc.add(start, duration)  # overflows where the duration did, and so is the end again
    started = micros(start)
    return {
        "time": started,
        "date": days(started),
        "start_time_unix_nano": nanos(start),
        "end_time_unix_nano": nanos(end),
        "duration_ns": _durations(start, end, duration.view(_NANOS)),
    }


def _durations(start: pa.Array, end: pa.Array, duration: pa.Array) -> pa.Array:
    """Null where a time was not sent, or where the duration does not fit into 64 bits."""
    zero = scalar(0, start.type)
    sent = pc.and_(pc.not_equal(start, zero), pc.not_equal(end, zero))
    forward = pc.greater_equal(end, start)
    fits = pc.equal(forward, pc.greater_equal(duration, scalar(0, _NANOS)))
    return null_unless(pc.and_(sent, fits), duration)


def _events(tables: Tables, table: pa.RecordBatch) -> dict[str, pa.Array]:
    events = Fields.of(table)
    return {
        "time_unix_nano": events.nanos("time_unix_nano"),
        "name": events.text("name"),
        **attributes_of(tables.get(slots.SPAN_EVENT_ATTRS), row_ids(table)).columns(),
        "dropped_attributes_count": events.positive("dropped_attributes_count"),
    }


def _links(tables: Tables, table: pa.RecordBatch) -> dict[str, pa.Array]:
    links = Fields.of(table)
    return {
        "trace_id": hex_ids(table, slots.SPAN_LINKS, "trace_id", tables.kept),
        "span_id": hex_ids(table, slots.SPAN_LINKS, "span_id", tables.kept),
        "trace_state": links.text("trace_state"),
        "flags": links.positive("flags"),
        **attributes_of(tables.get(slots.SPAN_LINK_ATTRS), row_ids(table)).columns(),
        "dropped_attributes_count": links.positive("dropped_attributes_count"),
    }
