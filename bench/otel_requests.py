"""The requests that decoding is measured with, and the plain way to decode them."""

from __future__ import annotations

import json
from base64 import b64decode
from random import Random
from typing import Any

import pyarrow as pa
from google.protobuf import json_format

from penstock.otel import Signal

START_NS = 1_790_000_000_000_000_000
RESOURCE = {
    "service.name": "checkout",
    "service.version": "1.42.0",
    "host.name": "ip-10-0-12-7",
    "k8s.pod.name": "checkout-5f6d8b7c9-x2x4z",
    "telemetry.sdk.language": "python",
    "deployment.environment.name": "production",
}
SCOPE = ("opentelemetry.instrumentation.requests", "0.66b1")


def traces(count: int, seed: int = 1) -> bytes:
    """Spans with eight attributes, some with an event: 1000 are 415 KB."""
    random = Random(seed)
    request, spans = _request(Signal.TRACES)
    for number in range(count):
        start = START_NS + number * 1000
        span = spans.add(
            trace_id=random.randbytes(16),
            span_id=random.randbytes(8),
            name=random.choice(("GET /api/cart", "POST /checkout", "SELECT shop.orders")),
            kind=random.randint(1, 5),
            start_time_unix_nano=start,
            end_time_unix_nano=start + random.randint(10**3, 10**8),
            flags=257,
        )
        if random.random() < 0.8:
            span.parent_span_id = random.randbytes(8)
        _describe_call(span.attributes, random)
        if random.random() < 0.1:
            event = span.events.add(name="exception", time_unix_nano=start)
            event.attributes.add(key="exception.type").value.string_value = "TimeoutError"
        span.status.code = random.choice((0, 1, 2))
    return _encoded(request)


def logs(count: int, seed: int = 1) -> bytes:
    """Records with a body and eight attributes."""
    random = Random(seed)
    request, records = _request(Signal.LOGS)
    for number in range(count):
        record = records.add(
            time_unix_nano=START_NS + number,
            observed_time_unix_nano=START_NS + number + 1000,
            severity_number=random.choice((9, 9, 9, 13, 17)),
            severity_text=random.choice(("INFO", "WARN", "ERROR")),
            trace_id=random.randbytes(16),
            span_id=random.randbytes(8),
        )
        record.body.string_value = f"order {random.getrandbits(40)} placed by customer"
        _describe_call(record.attributes, random)
    return _encoded(request)


def metrics(count: int, seed: int = 1) -> bytes:
    """Data points of gauges, sums and histograms with three attributes; ten to a metric."""
    random = Random(seed)
    request, held = _request(Signal.METRICS)
    for number in range(count // 10):
        metric = held.add(name=f"http.server.{number % 40}", unit="s", description="as measured")
        kind = ("gauge", "sum", "histogram")[number % 3]
        points = getattr(metric, kind).data_points
        for _ in range(10):
            point = points.add(start_time_unix_nano=START_NS, time_unix_nano=START_NS + 10**10)
            if kind == "histogram":
                point.count, point.sum = 9, random.random()
                point.bucket_counts.extend([random.randint(0, 5) for _ in range(12)])
                point.explicit_bounds.extend([0.005 * 2**bound for bound in range(11)])
            else:
                point.as_double = random.random()
            for key in ("http.route", "server.address", "http.request.method"):
                point.attributes.add(key=key).value.string_value = f"{key}-{random.randint(0, 9)}"
    return _encoded(request)


def as_json(signal: Signal, encoded: bytes) -> bytes:
    """The request as OTLP's JSON."""
    request = signal.request_class.FromString(encoded)
    written = json_format.MessageToDict(request, use_integers_for_enums=True)
    return json.dumps(_with_hex_ids(written)).encode()


def walk(encoded: bytes) -> dict[str, pa.RecordBatch]:
    """Traces by the official classes and a walk over their objects: spans, events, attributes."""
    request: Any = Signal.TRACES.request_class.FromString(encoded)
    spans, events = _Rows(SPAN_COLUMNS), _Rows(EVENT_COLUMNS)
    resources, attributes, of_events = (_Rows(ATTRIBUTE_COLUMNS) for _ in range(3))
    scopes = -1
    for number, resource in enumerate(request.resource_spans):
        _add_attributes(resources, number, resource.resource.attributes)
        for scope in resource.scope_spans:
            scopes += 1
            for span in scope.spans:
                row = len(spans.rows)
                status = {"code": span.status.code, "status_message": span.status.message}
                start, end = span.start_time_unix_nano, span.end_time_unix_nano
                ids = (span.trace_id, span.span_id, span.parent_span_id or None)
                rest = (span.name, span.kind, span.flags, status)
                spans.rows.append((row, number, scopes, start, end - start, *ids, *rest))
                _add_attributes(attributes, row, span.attributes)
                for event in span.events:
                    _add_attributes(of_events, len(events.rows), event.attributes)
                    events.rows.append((len(events.rows), row, event.time_unix_nano, event.name))
    tables = {"resource": resources, "attrs": attributes, "event_attrs": of_events}
    tables |= {"spans": spans, "events": events}
    return {name: table.batch() for name, table in tables.items()}


SPAN_COLUMNS = {
    "id": pa.uint16(),
    "resource_id": pa.uint16(),
    "scope_id": pa.uint16(),
    "start_time_unix_nano": pa.timestamp("ns"),
    "duration_time_unix_nano": pa.duration("ns"),
    "trace_id": pa.binary(16),
    "span_id": pa.binary(8),
    "parent_span_id": pa.binary(8),
    "name": pa.string(),
    "kind": pa.int32(),
    "flags": pa.uint32(),
    "status": pa.struct([("code", pa.int32()), ("status_message", pa.string())]),
}
EVENT_COLUMNS = {
    "id": pa.uint32(),
    "parent_id": pa.uint16(),
    "time_unix_nano": pa.timestamp("ns"),
    "name": pa.string(),
}
ATTRIBUTE_COLUMNS = {
    "parent_id": pa.uint16(),
    "key": pa.string(),
    "type": pa.uint8(),
    "str": pa.string(),
    "int": pa.int64(),
    "bool": pa.bool_(),
}


class _Rows:
    """Rows that become a table."""

    def __init__(self, columns: dict[str, pa.DataType]) -> None:
        self._columns = columns
        self.rows: list[tuple[Any, ...]] = []

    def batch(self) -> pa.RecordBatch:
        values = zip(*self.rows, strict=True) if self.rows else [()] * len(self._columns)
        types = self._columns.values()
        arrays = [pa.array(column, type_) for column, type_ in zip(values, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._columns))


def _add_attributes(table: _Rows, parent: int, pairs: Any) -> None:
    for pair in pairs:
        value = pair.value
        match value.WhichOneof("value"):
            case "string_value":
                table.rows.append((parent, pair.key, 1, value.string_value, None, None))
            case "int_value":
                table.rows.append((parent, pair.key, 2, None, value.int_value, None))
            case _:
                table.rows.append((parent, pair.key, 4, None, None, value.bool_value))


def _request(signal: Signal) -> tuple[Any, Any]:
    """A request with a resource and a scope, and where its records go."""
    request: Any = signal.request_class()
    outer, inner, records = signal.field_names
    resource = getattr(request, outer).add()
    for key, value in RESOURCE.items():
        resource.resource.attributes.add(key=key).value.string_value = value
    scope = getattr(resource, inner).add()
    scope.scope.name, scope.scope.version = SCOPE
    return request, getattr(scope, records)


def _describe_call(attributes: Any, random: Random) -> None:
    session = f"{random.randrange(10**6)}?session={random.randrange(10**9)}"
    for key, value in {
        "http.request.method": random.choice(("GET", "POST")),
        "url.full": f"https://shop.example.com/api/cart/{session}",
        "server.address": "shop.example.com",
        "user_agent.original": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
        "network.protocol.version": "1.1",
    }.items():
        attributes.add(key=key).value.string_value = value
    attributes.add(key="http.response.status_code").value.int_value = random.choice((200, 404, 500))
    attributes.add(key="server.port").value.int_value = 443
    attributes.add(key="app.cached").value.bool_value = random.random() < 0.5


def _encoded(request: Any) -> bytes:
    data: bytes = request.SerializeToString()
    return data


def _with_hex_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_hex_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = {"traceId", "spanId", "parentSpanId"}
    return {
        key: b64decode(item).hex() if key in ids else _with_hex_ids(item)
        for key, item in value.items()
    }
