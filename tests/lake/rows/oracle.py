"""The rows that requests must become, by a plain walk over the official classes."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.otel import Signal

KINDS = {
    0: None,
    1: "SPAN_KIND_INTERNAL",
    2: "SPAN_KIND_SERVER",
    3: "SPAN_KIND_CLIENT",
    4: "SPAN_KIND_PRODUCER",
    5: "SPAN_KIND_CONSUMER",
}
CODES = {0: "STATUS_CODE_UNSET", 1: "STATUS_CODE_OK", 2: "STATUS_CODE_ERROR"}
TEMPORALITIES = {
    0: None,
    1: "AGGREGATION_TEMPORALITY_DELTA",
    2: "AGGREGATION_TEMPORALITY_CUMULATIVE",
}
DAY_US = 86_400_000_000
Row = dict[str, Any]


def expected_rows(signal: Signal, requests: Sequence[Any], origin: Any) -> list[Row]:
    """The rows of requests that follow each other; doubles and JSON as `comparable` has them."""
    rows = {Signal.TRACES: span_row, Signal.LOGS: log_row, Signal.METRICS: point_rows}[signal]
    found = []
    for offset, request in enumerate(requests, origin.offset):
        place = {
            "namespace": origin.place.namespace,
            "_source": origin.source,
            "_topic": origin.topic,
        }
        place |= {"_topic_partition": origin.partition, "_offset": offset}
        for shared, record in records(signal, request):
            found += [{**shared, **place, **row} for row in rows(record)]
    return found


def records(signal: Signal, request: Any) -> Iterator[tuple[Row, Any]]:
    """Each span, log record or metric, with the columns of its resource and scope."""
    outer, inner, held = signal.field_names
    for resource in getattr(request, outer):
        for scope in getattr(resource, inner):
            shared = container_columns(resource, scope)
            for record in getattr(scope, held):
                yield shared, record


def container_columns(outer: Any, inner: Any) -> Row:
    resource, scope = outer.resource, inner.scope
    names = {"name": scope.name or None, "version": scope.version or None}
    service = (attributes(resource.attributes)["attributes"] or {}).get("service.name")
    return {
        "service_name": service,
        "resource": container(resource) if outer.HasField("resource") else None,
        "instrumentation_scope": names | container(scope) if inner.HasField("scope") else None,
        "resource_schema_url": outer.schema_url or None,
        "scope_schema_url": inner.schema_url or None,
    }


def container(message: Any) -> Row:
    return attributes(message.attributes) | dropped(message)


def dropped(message: Any) -> Row:
    return {"dropped_attributes_count": message.dropped_attributes_count or None}


# --- values ------------------------------------------------------------------------------------


def attributes(pairs: Any) -> Row:
    texts = {pair.key: text(pair.value) for pair in pairs}
    types = {pair.key: type_name(pair.value) for pair in pairs}
    types = {key: name for key, name in types.items() if name}
    return {"attributes": texts or None, "attribute_types": types or None}


def type_name(value: Any) -> str | None:
    names = {"kvlist_value": "map", "string_value": None, None: "empty"}
    kind = value.WhichOneof("value")
    return names[kind] if kind in names else kind.removesuffix("_value")


def text(value: Any) -> Any:
    match value.WhichOneof("value"):
        case "double_value":
            return double(value.double_value)
        case "bool_value":
            return "true" if value.bool_value else "false"
        case "int_value":
            return str(value.int_value)
        case "array_value" | "kvlist_value":
            return repr(json_value(value))
        case _:
            return json_value(value)


def double(value: float) -> str:
    """Its bits, but for a NaN: of those there is one in text."""
    return "nan" if value != value else struct.pack(">d", value).hex()


def json_value(value: Any) -> Any:
    match value.WhichOneof("value"):
        case None:
            return None
        case "bytes_value":
            return b64encode(value.bytes_value).decode()
        case "array_value":
            return [json_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return {pair.key: json_value(pair.value) for pair in value.kvlist_value.values}
        case "double_value" if value.double_value != value.double_value:
            return "NaN"
        case "double_value" if abs(value.double_value) == float("inf"):
            return "Infinity" if value.double_value > 0 else "-Infinity"
        case kind:
            return getattr(value, kind)


# --- numbers and ids ---------------------------------------------------------------------------


def signed(number: int) -> int | None:
    return number if number < 2**63 else None


def nanos(time: int) -> int | None:
    return signed(time) or None


def times(time: int) -> Row:
    micros = time // 1000 if time else None
    return {"time": micros, "date": None if micros is None else micros // DAY_US}


def hexed(message: Any, *names: str) -> Row:
    return {name: getattr(message, name).hex() or None for name in names}


def enum_name(number: int, names: dict[int, Any]) -> str | None:
    return names.get(number, str(number))


# --- spans and logs ----------------------------------------------------------------------------


def span_row(span: Any) -> list[Row]:
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    duration = end - start if start and end and -(2**63) <= end - start < 2**63 else None
    status = span.status
    return [
        {
            **times(start),
            **hexed(span, "trace_id", "span_id", "parent_span_id"),
            "trace_state": span.trace_state or None,
            "flags": span.flags or None,
            "name": span.name or None,
            "kind": enum_name(span.kind, KINDS),
            "start_time_unix_nano": nanos(start),
            "end_time_unix_nano": nanos(end),
            "duration_ns": duration,
            "status_code": enum_name(status.code, CODES) if span.HasField("status") else None,
            "status_message": status.message or None,
            **container(span),
            "events": [event(each) for each in span.events] or None,
            "links": [link(each) for each in span.links] or None,
            "dropped_events_count": span.dropped_events_count or None,
            "dropped_links_count": span.dropped_links_count or None,
        }
    ]


def event(message: Any) -> Row:
    time = {"time_unix_nano": nanos(message.time_unix_nano)}
    return {**time, "name": message.name or None, **container(message)}


def link(message: Any) -> Row:
    return {
        **hexed(message, "trace_id", "span_id"),
        "trace_state": message.trace_state or None,
        "flags": message.flags or None,
        **container(message),
    }


def log_row(record: Any) -> list[Row]:
    sent = record.HasField("body")
    return [
        {
            **times(record.time_unix_nano or record.observed_time_unix_nano),
            "observed_time": times(record.observed_time_unix_nano)["time"],
            **hexed(record, "trace_id", "span_id"),
            "flags": record.flags or None,
            "time_unix_nano": nanos(record.time_unix_nano),
            "observed_time_unix_nano": nanos(record.observed_time_unix_nano),
            "severity_number": record.severity_number or None,
            "severity_text": record.severity_text or None,
            "body": text(record.body) if sent else None,
            "body_type": type_name(record.body) if sent else None,
            "event_name": record.event_name or None,
            **container(record),
        }
    ]


# --- metrics -----------------------------------------------------------------------------------


def point_rows(metric: Any) -> Iterator[Row]:
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    data = getattr(metric, kind)
    shared = {
        "name": metric.name or None,
        "description": metric.description or None,
        "unit": metric.unit or None,
        "type": kind,
        "is_monotonic": data.is_monotonic if kind == "sum" else None,
        "aggregation_temporality": enum_name(
            getattr(data, "aggregation_temporality", 0), TEMPORALITIES
        ),
    }
    for point in data.data_points:
        yield shared | point_row(point, kind)


def point_row(point: Any, kind: str) -> Row:
    structs = {
        "histogram": histogram(point) if kind == "histogram" else None,
        "exp_histogram": exp_histogram(point) if kind == "exponential_histogram" else None,
        "summary": summary(point) if kind == "summary" else None,
    }
    values = number(point) if kind in {"gauge", "sum"} else dict.fromkeys(number(None))
    exemplars = [] if kind == "summary" else [exemplar(each) for each in point.exemplars]
    return {
        **times(point.time_unix_nano),
        "time_unix_nano": nanos(point.time_unix_nano),
        "start_time_unix_nano": nanos(point.start_time_unix_nano),
        **values,
        **structs,
        "exemplars": exemplars or None,
        **attributes(point.attributes),
        "flags": point.flags or None,
    }


def number(message: Any) -> Row:
    kind = message.WhichOneof("value") if message is not None else None
    return {
        "value_int": message.as_int if kind == "as_int" else None,
        "value_double": double(message.as_double) if kind == "as_double" else None,
    }


def optional(point: Any, *names: str) -> Row:
    return {name: double(getattr(point, name)) if point.HasField(name) else None for name in names}


def histogram(point: Any) -> Row:
    return {
        "count": signed(point.count),
        **optional(point, "sum", "min", "max"),
        "bucket_counts": [signed(count) for count in point.bucket_counts] or None,
        "explicit_bounds": [double(bound) for bound in point.explicit_bounds] or None,
    }


def exp_histogram(point: Any) -> Row:
    threshold = double(point.zero_threshold)
    return {
        "count": signed(point.count),
        **optional(point, "sum", "min", "max"),
        "scale": point.scale,
        "zero_count": signed(point.zero_count),
        "zero_threshold": None if threshold == double(0.0) else threshold,
        "positive": buckets(point.positive) if point.HasField("positive") else None,
        "negative": buckets(point.negative) if point.HasField("negative") else None,
    }


def buckets(message: Any) -> Row:
    counts = [signed(count) for count in message.bucket_counts]
    return {"offset": message.offset, "bucket_counts": counts or None}


def summary(point: Any) -> Row:
    quantiles = [
        {"quantile": double(each.quantile), "value": double(each.value)}
        for each in point.quantile_values
    ]
    return {"count": signed(point.count), "sum": double(point.sum), "quantiles": quantiles or None}


def exemplar(message: Any) -> Row:
    return {
        "time_unix_nano": nanos(message.time_unix_nano),
        **number(message),
        **hexed(message, "trace_id", "span_id"),
        **attributes(message.filtered_attributes),
    }
