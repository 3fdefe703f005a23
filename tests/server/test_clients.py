"""Real clients: the OpenTelemetry SDK, curl, and the generated classes over bare channels."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
    OTLPMetricExporter as GrpcMetrics,
)
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
    OTLPMetricExporter as HttpMetrics,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, StatusCode

from penstock.otel import Signal
from tests.otel.samples import canonical, full_request
from tests.server.running import JSON, PROTOBUF, Server, export, stored
from tests.server.samples import sample
from tests.server.test_http import otlp_json

RESOURCE = Resource.create({"service.name": "checkout", "host.cpus": 4, "tags": ["a", "b"]})
NAMESPACE = "x-penstock-namespace"


def spans() -> Any:
    """What an instrumented program hands to its exporter."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("shop", "1.2", schema_url="https://example.org/schema")
    with tracer.start_as_current_span("POST /cart", kind=SpanKind.SERVER) as parent:
        parent.set_attribute("http.response.status_code", 500)
        parent.set_attribute("ratio", 0.25)
        parent.add_event("retry", {"attempt": 2, "fatal": False})
        links = [Link(parent.get_span_context(), {"why": "batch"})]
        with tracer.start_as_current_span("charge", kind=SpanKind.CLIENT, links=links) as span:
            span.set_status(StatusCode.ERROR, "card declined")
    return memory.get_finished_spans()


def log_records() -> Any:
    """The same for logs."""
    memory = InMemoryLogRecordExporter()
    provider = LoggerProvider(resource=RESOURCE)
    provider.add_log_record_processor(SimpleLogRecordProcessor(memory))
    logger = provider.get_logger("shop", "1.2")
    for number, body in enumerate(["card declined", {"nested": [1, 2.5, None]}, b"\0bytes"]):
        logger.emit(
            LogRecord(
                timestamp=10**18 + number,
                observed_timestamp=10**18 + 7,
                severity_number=SeverityNumber.ERROR,
                severity_text="ERROR",
                body=body,
                attributes={"attempt": number, "cart": "é∂✓"},
            )
        )
    return memory.get_finished_logs()


def metric_data() -> Any:
    """The same for metrics: sums, gauges, histograms of both kinds."""
    reader = InMemoryMetricReader()
    exponential = View(instrument_name="sizes", aggregation=ExponentialBucketHistogramAggregation())
    provider = MeterProvider([reader], resource=RESOURCE, views=[exponential])
    meter = provider.get_meter("shop", "1.2")
    meter.create_counter("orders", "1", "orders taken").add(3, {"country": "CH"})
    meter.create_up_down_counter("queue").add(-2)
    meter.create_gauge("temperature").set(21.5)
    for value in (1, 30, 700):
        meter.create_histogram("latency", "ms").record(value)
        meter.create_histogram("sizes", "By").record(value)
    found = reader.get_metrics_data()
    provider.shutdown()
    return found


KINDS: dict[Signal, tuple[Any, Any, Any, Any]] = {
    Signal.TRACES: (spans, encode_spans, GrpcSpans, HttpSpans),
    Signal.LOGS: (log_records, encode_logs, GrpcLogs, HttpLogs),
    Signal.METRICS: (metric_data, encode_metrics, GrpcMetrics, HttpMetrics),
}


def flushed(server: Server, sent: Signal, namespace: str) -> bytes:
    """What a topic holds, in one encoding for equal contents."""
    assert server.ask("POST", "/api/v1/flush", port="web").status == 200
    found = stored(Path(server.ready["data_dir"]), sent, namespace)
    return canonical(sent, *(request.SerializeToString() for request in found))


@pytest.mark.parametrize("compression", ["NoCompression", "Gzip", "Deflate"])
@pytest.mark.parametrize("sent", Signal)
def test_grpc_exporter_of_the_sdk_is_understood(
    server: Server, sent: Signal, compression: str
) -> None:
    """Everything that it sends is in the store, with every compression that it has."""
    make, encode, exporter, _ = KINDS[sent]
    data, namespace = make(), f"grpc-{compression}".lower()
    client = exporter(
        endpoint=f"http://127.0.0.1:{server.ready['grpc']}",
        insecure=True,
        headers=((NAMESPACE, namespace),),
        compression=getattr(grpc.Compression, compression),
    )
    assert client.export(data).name == "SUCCESS"
    client.shutdown()
    assert flushed(server, sent, namespace) == canonical(sent, encode(data).SerializeToString())


@pytest.mark.parametrize("compression", ["NoCompression", "Gzip"])
@pytest.mark.parametrize("sent", Signal)
def test_http_exporter_of_the_sdk_is_understood(
    server: Server, sent: Signal, compression: str
) -> None:
    """The same over HTTP."""
    make, encode, _, exporter = KINDS[sent]
    data, namespace = make(), f"http-{compression}".lower()
    client = exporter(
        endpoint=f"http://127.0.0.1:{server.ready['http']}{sent.http_path}",
        headers={NAMESPACE: namespace},
        compression=getattr(Compression, compression),
    )
    assert client.export(data).name == "SUCCESS"
    client.shutdown()
    assert flushed(server, sent, namespace) == canonical(sent, encode(data).SerializeToString())


@pytest.mark.parametrize("sent", Signal)
def test_everything_that_otlp_has_arrives_intact(server: Server, sent: Signal) -> None:
    """A value in every field, over gRPC, over HTTP, and in JSON as far as that can say it."""
    data = full_request(sent, 5).SerializeToString()
    assert server.export(sent, data, x_penstock_namespace="full-grpc") == sent.response_class()
    assert server.post(sent, data, x_penstock_namespace="full-http").status == 200
    text = as_json(sent, data)
    answer = server.post(sent, text.encode(), JSON, x_penstock_namespace="full-json")
    assert (answer.status, answer.body) == (200, b"{}")
    for namespace in ("full-grpc", "full-http"):
        assert flushed(server, sent, namespace) == canonical(sent, data), namespace
    assert as_json(sent, flushed(server, sent, "full-json")) == text


def as_json(sent: Signal, data: bytes) -> str:
    """The request in OTLP's JSON."""
    return json.dumps(otlp_json(MessageToDict(sent.request_class.FromString(data))))


CURL = shutil.which("curl")


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
@pytest.mark.parametrize("sent", Signal)
def test_curl_with_json_is_understood(server: Server, sent: Signal) -> None:
    """As the documentation of many a tool shows it."""
    data = sample(sent, "from curl")
    text = as_json(sent, data)
    address = f"http://127.0.0.1:{server.ready['http']}{sent.http_path}"
    heads = [f"-Hcontent-type: {JSON}", f"-H{NAMESPACE}: curl"]
    shown = ["--write-out", "%{http_code} %{content_type}"]
    command = [str(CURL), "-sS", *shown, *heads, "--data-binary", "@-", address]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert done.stdout == f"{{}}200 {JSON}"
    assert flushed(server, sent, "curl") == canonical(sent, data)


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_curl_may_wait_for_leave_and_send_chunks(server: Server) -> None:
    """`Expect: 100-continue` and `Transfer-Encoding: chunked`."""
    data = sample(Signal.TRACES, "in chunks")
    address = f"http://127.0.0.1:{server.ready['http']}/v1/traces"
    heads = [f"-Hcontent-type: {PROTOBUF}", "-Hexpect: 100-continue", f"-H{NAMESPACE}: chunks"]
    command = [str(CURL), "-sSf", "-XPOST", "-T-", *heads, address]
    subprocess.run(command, input=data, capture_output=True, check=True)
    assert flushed(server, Signal.TRACES, "chunks") == canonical(Signal.TRACES, data)


def test_one_channel_carries_many_requests_at_once(server: Server) -> None:
    """All are answered, and all are there."""
    names = [f"call {number}" for number in range(200)]
    with server.channel() as channel:
        method = channel.unary_unary(Signal.LOGS.grpc_method)
        calls = [
            method.future(sample(Signal.LOGS, name), metadata=((NAMESPACE, "many"),))
            for name in names
        ]
        assert [call.result() for call in calls] == [b""] * 200
    found = Signal.LOGS.request_class.FromString(flushed(server, Signal.LOGS, "many"))
    bodies = [
        record.body.string_value
        for resource in found.resource_logs  # type: ignore[attr-defined]
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
    assert sorted(bodies) == sorted(names)


def test_one_connection_carries_many_requests_in_turn(server: Server) -> None:
    """It is kept open, after refusals too."""
    connection = server.connection()
    heads = {"content-type": PROTOBUF, NAMESPACE: "in-turn"}
    for number in range(50):
        body = sample(Signal.LOGS, str(number)) if number % 2 else b"not a request"
        connection.request("POST", "/v1/logs", body, heads)
        response = connection.getresponse()
        response.read()
        assert response.status == (200 if number % 2 else 400)
        assert not response.will_close
    connection.close()


def test_exporter_is_told_of_partial_success(server: Server) -> None:
    """Spans without valid ids are rejected; the others are stored."""
    request: Any = Signal.TRACES.request_class.FromString(
        sample(Signal.TRACES, "good", "bad", "also good")
    )
    request.resource_spans[0].scope_spans[0].spans[1].trace_id = b"short"
    with server.channel() as channel:
        data = request.SerializeToString()
        answer = export(channel, Signal.TRACES, data, x_penstock_namespace="partly")
    assert answer.partial_success.rejected_spans == 1
    assert "1 of 3 spans" in answer.partial_success.error_message
    expected = sample(Signal.TRACES, "good", "also good")
    assert flushed(server, Signal.TRACES, "partly") == canonical(Signal.TRACES, expected)


def test_request_of_which_everything_is_rejected_leaves_nothing(server: Server) -> None:
    """Partial success all the same; no topic is made."""
    request: Any = Signal.TRACES.request_class.FromString(sample(Signal.TRACES, "bad"))
    request.resource_spans[0].scope_spans[0].spans[0].span_id = bytes(8)
    data = request.SerializeToString()
    answer = server.export(Signal.TRACES, data, x_penstock_namespace="rejected")
    assert answer.partial_success.rejected_spans == 1
    assert not (Path(server.ready["data_dir"]) / "topics" / "rejected").exists()
