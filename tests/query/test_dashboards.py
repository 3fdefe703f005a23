"""Questions as people's dashboards ask them in the ClickHouse convention.

What they ask is what the queries do that the OpenTelemetry Collector's ClickHouse exporter gives as
examples (opentelemetry-collector-contrib, exporter/clickhouseexporter/README.md) and that Grafana's
ClickHouse data source makes for its panels of logs, traces and metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.pipeline.flush.helpers import without_spark
from tests.pipeline.helpers import LOGS, METRICS, MORNING_NS, Data
from tests.query.helpers import cold, values, warm

MINUTE_NS = 60_000_000_000
TRACE = bytes(15) + b"\7"
EIGHT = datetime(2026, 1, 1, 8, tzinfo=UTC)


def _trace(service: str, spans: list[dict[str, Any]]) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = service
    scope = resource.scope_spans.add()
    for fields in spans:
        span = scope.spans.add(trace_id=TRACE, **fields["span"])
        span.status.code = fields.get("code", 0)
        span.status.message = fields.get("message", "")
        for key, value in fields.get("attributes", {}).items():
            span.attributes.add(key=key).value.string_value = value
        for name in fields.get("events", ()):
            span.events.add(name=name, time_unix_nano=MORNING_NS)
    return request.SerializeToString()


def _span(number: int, parent: int, name: str, kind: int, took_ms: int) -> dict[str, Any]:
    begin = MORNING_NS + number * MINUTE_NS
    return {
        "span_id": number.to_bytes(8, "big"),
        "parent_span_id": parent.to_bytes(8, "big") if parent else b"",
        "name": name,
        "kind": kind,
        "start_time_unix_nano": begin,
        "end_time_unix_nano": begin + took_ms * 1_000_000,
    }


def _logs() -> bytes:
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    records = resource.scope_logs.add().log_records
    for number, (severity, body) in enumerate(
        [("INFO", '{"bytes": 1200}'), ("ERROR", "payment failed"), ("INFO", "order placed")]
    ):
        record = records.add(time_unix_nano=MORNING_NS + number * MINUTE_NS, trace_id=TRACE)
        record.severity_text, record.severity_number = severity, 17 if severity == "ERROR" else 9
        record.body.string_value = body
        record.attributes.add(key="container_name").value.string_value = f"box-{number}"
    return request.SerializeToString()


def _metrics() -> bytes:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = resource.scope_metrics.add()
    for number, value in enumerate((2, 5, 9)):
        metric = scope.metrics.add(name="orders", unit="1")
        metric.sum.aggregation_temporality, metric.sum.is_monotonic = 2, True
        metric.sum.data_points.add(time_unix_nano=MORNING_NS + number * MINUTE_NS, as_int=value)
    gauge = scope.metrics.add(name="load")
    gauge.gauge.data_points.add(time_unix_nano=MORNING_NS, as_double=0.5)
    histogram = scope.metrics.add(name="latency").histogram
    histogram.aggregation_temporality = 1
    point = histogram.data_points.add(time_unix_nano=MORNING_NS, count=3, sum=6.0)
    point.bucket_counts.extend([1, 2])
    point.explicit_bounds.append(1.5)
    return request.SerializeToString()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """Three spans of two services, three records and some metrics; half of it in the lake."""
    with pytest.MonkeyPatch.context() as patched:
        without_spark(patched)
        data = Data(tmp_path_factory.mktemp("shop") / "data")
        server = {"span": _span(1, 0, "POST /buy", 2, 300), "attributes": {"http.method": "POST"}}
        inner = {"span": _span(2, 1, "charge", 3, 200), "code": 2, "message": "declined"}
        inner |= {"events": ["exception", "retry"], "attributes": {"peer.service": "bank"}}
        cold(data, _trace("shop", [server, inner]))
        cold(data, _logs(), topic=LOGS)
        warm(data, _trace("bank", [{"span": _span(3, 2, "POST /charge", 2, 100)}]))
        warm(data, _metrics(), topic=METRICS)
        yield data


QUESTIONS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "how many records of each severity a minute": (
        "SELECT toDateTime(toStartOfInterval(Timestamp, INTERVAL 60 second)) AS t, SeverityText,"
        " count() AS n FROM otel_logs WHERE Timestamp >= '2026-01-01' GROUP BY t, SeverityText"
        " HAVING t = '2026-01-01 08:00:00' ORDER BY t",
        [(EIGHT, "INFO", 1)],
    ),
    "records of a service": (
        "SELECT Timestamp AS log_time, Body FROM otel_logs WHERE ServiceName = 'shop'"
        " AND Timestamp < '2026-01-01 08:01:00' LIMIT 100",
        [(EIGHT, '{"bytes": 1200}')],
    ),
    "records with an attribute": (
        "SELECT Body FROM otel_logs WHERE LogAttributes['container_name'] = 'box-1'",
        [("payment failed",)],
    ),
    "records that contain a text": (
        "SELECT Body FROM otel_logs WHERE Body LIKE '%placed%' OR hasToken(Body, 'placed')",
        [("order placed",)],
    ),
    "records that match a pattern": (
        "SELECT Body FROM otel_logs WHERE match(Body, 'fail.d$')",
        [("payment failed",)],
    ),
    "records with a number in their body": (
        "SELECT JSONExtractFloat(Body, 'bytes') FROM otel_logs"
        " WHERE startsWith(Body, '{') AND JSONExtractFloat(Body, 'bytes') > 1000",
        [(1200.0,)],
    ),
    "records of a trace": (
        "SELECT count() FROM otel_logs WHERE TraceId = '00000000000000000000000000000007'",
        [(3,)],
    ),
    "spans with an attribute": (
        "SELECT TraceId, SpanName, ServiceName FROM otel_traces"
        " WHERE SpanAttributes['peer.service'] = 'bank'",
        [(TRACE.hex(), "charge", "shop")],
    ),
    "spans that have an attribute at all": (
        "SELECT SpanName FROM otel_traces WHERE mapContains(SpanAttributes, 'http.method')"
        " AND has(mapKeys(SpanAttributes), 'http.method')",
        [("POST /buy",)],
    ),
    "spans that failed": (
        "SELECT SpanName, StatusMessage FROM otel_traces WHERE StatusCode = 'Error'",
        [("charge", "declined")],
    ),
    "slow spans": (
        "SELECT SpanName, Duration / 1000000 AS ms FROM otel_traces WHERE Duration > 150000000"
        " ORDER BY Duration DESC",
        [("POST /buy", 300.0), ("charge", 200.0)],
    ),
    "rate, errors and latency of services": (
        "SELECT ServiceName, count() AS requests, countIf(StatusCode = 'Error') AS errors,"
        " quantile_cont(Duration, 0.5) / 1e6 AS p50, avgIf(Duration, SpanKind = 'Server') / 1e6"
        " FROM otel_traces GROUP BY ServiceName ORDER BY ServiceName",
        [("bank", 1, 0, 100.0, 100.0), ("shop", 2, 1, 250.0, 300.0)],
    ),
    "latency over time": (
        "SELECT toStartOfHour(Timestamp) AS t, max(Duration) FROM otel_traces"
        " WHERE Timestamp BETWEEN '2026-01-01 08:00' AND '2026-01-01 09:00' GROUP BY t ORDER BY t",
        [(EIGHT, 300_000_000)],
    ),
    "root spans": (
        "SELECT SpanName, Duration FROM otel_traces WHERE ParentSpanId = ''"
        " AND SpanKind = 'Server'",
        [("POST /buy", 300_000_000)],
    ),
    "one trace in its order": (
        "SELECT TraceId AS traceID, SpanId AS spanID, ParentSpanId AS parentSpanID,"
        " ServiceName AS serviceName, SpanName AS operationName, Timestamp AS startTime,"
        " Duration / 1000000 AS duration FROM otel_traces"
        " WHERE TraceId = '00000000000000000000000000000007' ORDER BY startTime LIMIT 1",
        [(TRACE.hex(), f"{1:016x}", "", "shop", "POST /buy", EIGHT.replace(minute=1), 300.0)],
    ),
    "when a trace began and ended": (
        "SELECT min(Timestamp), max(toUnixTimestamp64Nano(Timestamp) + Duration)"
        " FROM otel_traces WHERE TraceId = '00000000000000000000000000000007'",
        [(EIGHT.replace(minute=1), MORNING_NS + 3 * MINUTE_NS + 100_000_000)],
    ),
    "exceptions": (
        'SELECT SpanName, "Events.Name" FROM otel_traces WHERE has("Events.Name", \'exception\')',
        [("charge", ["exception", "retry"])],
    ),
    "who calls whom": (
        "SELECT caller.ServiceName, callee.ServiceName, count() FROM otel_traces AS caller"
        " JOIN otel_traces AS callee ON callee.ParentSpanId = caller.SpanId"
        " AND callee.TraceId = caller.TraceId WHERE caller.ServiceName <> callee.ServiceName"
        " GROUP BY ALL",
        [("shop", "bank", 1)],
    ),
    "names to choose from": (
        "SELECT DISTINCT ServiceName FROM otel_traces ORDER BY ServiceName",
        [("bank",), ("shop",)],
    ),
    "keys to choose from": (
        "SELECT DISTINCT arrayJoin(mapKeys(SpanAttributes)) AS key FROM otel_traces ORDER BY key",
        [("http.method",), ("peer.service",)],
    ),
    "a counter over time": (
        "SELECT toStartOfMinute(TimeUnix) AS t, max(Value) FROM otel_metrics_sum"
        " WHERE MetricName = 'orders' AND ServiceName = 'shop' AND IsMonotonic"
        " GROUP BY t ORDER BY t DESC LIMIT 1",
        [(EIGHT.replace(minute=2), 9.0)],
    ),
    "a gauge": (
        "SELECT MetricName, avg(Value) FROM otel_metrics_gauge GROUP BY MetricName",
        [("load", 0.5)],
    ),
    "a histogram": (
        "SELECT Count, Sum, BucketCounts, ExplicitBounds FROM otel_metrics_histogram"
        " WHERE AggregationTemporality = 1",
        [(3, 6.0, [1, 2], [1.5])],
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_question_of_a_dashboard_is_answered(shop: Data, question: str) -> None:
    """As it would be by the tables that the exporter makes."""
    sql, expected = QUESTIONS[question]
    assert values(shop, sql) == expected


def test_resource_attributes_and_kinds_have_the_exporters_names(shop: Data) -> None:
    """Not those that OTLP has."""
    sql = "SELECT ResourceAttributes['service.name'], SpanKind, StatusCode FROM otel_traces"
    found = sorted(values(shop, sql))
    assert found == [
        ("bank", "Server", "Unset"),
        ("shop", "Client", "Error"),
        ("shop", "Server", "Unset"),
    ]
