"""Small requests that say what they are."""

from __future__ import annotations

import hashlib
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.otel import Signal


def traces(*names: str, padding: int = 0) -> bytes:
    """A request with a span for each name."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for name in names:
        trace_id, span_id = ids(name)
        span = scope.spans.add(trace_id=trace_id, span_id=span_id, name=name)
        if padding:
            span.attributes.add(key="padding").value.string_value = "x" * padding
    return request.SerializeToString()


def logs(*bodies: str) -> bytes:
    """A request with a log record for each body."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    for body in bodies:
        scope.log_records.add().body.string_value = body
    return request.SerializeToString()


def metrics(*names: str) -> bytes:
    """A request with a gauge of one point for each name."""
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for name in names:
        scope.metrics.add(name=name).gauge.data_points.add(as_int=1)
    return request.SerializeToString()


MAKERS: dict[Signal, Any] = {Signal.TRACES: traces, Signal.LOGS: logs, Signal.METRICS: metrics}


def sample(sent: Signal, *names: str) -> bytes:
    """A request of any signal with a record for each name."""
    data: bytes = MAKERS[sent](*names)
    return data


def ids(name: str) -> tuple[bytes, bytes]:
    """A trace id and a span id of its own."""
    digest = hashlib.sha256(name.encode()).digest()
    return digest[:16], digest[16:24]
