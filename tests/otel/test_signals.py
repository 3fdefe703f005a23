"""What the three signals are called."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import penstock.otel
from penstock.otel import Signal


@pytest.mark.parametrize(
    ("signal", "method", "path"),
    [
        (
            Signal.TRACES,
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            "/v1/traces",
        ),
        (Signal.LOGS, "/opentelemetry.proto.collector.logs.v1.LogsService/Export", "/v1/logs"),
        (
            Signal.METRICS,
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            "/v1/metrics",
        ),
    ],
)
def test_services_are_named_as_clients_call_them(signal: Signal, method: str, path: str) -> None:
    """Over gRPC and HTTP."""
    assert signal.grpc_method == method
    assert signal.http_path == path


@pytest.mark.parametrize(
    ("signal", "field"),
    [
        (Signal.TRACES, "rejected_spans"),
        (Signal.LOGS, "rejected_log_records"),
        (Signal.METRICS, "rejected_data_points"),
    ],
)
def test_an_answer_says_how_many_records_were_rejected(signal: Signal, field: str) -> None:
    """With the reason."""
    response: Any = signal.response_class.FromString(signal.response(3, "why"))
    assert getattr(response.partial_success, field) == 3
    assert response.partial_success.error_message == "why"


@pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
def test_an_answer_to_a_whole_request_is_empty(signal: Signal) -> None:
    """OTLP: `partial_success` is left unset where everything was taken."""
    assert signal.response() == b""


def test_importing_the_package_imports_no_library() -> None:
    """A worker that only receives needs neither Arrow nor protobuf to start."""
    code = (
        "import sys; from penstock.otel import Signal; Signal.TRACES.http_path;"
        "assert not {'pyarrow', 'google.protobuf', 'ptars'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", penstock.otel.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """What `__all__` promises can be had."""
    assert getattr(penstock.otel, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="Signals"):
        _ = penstock.otel.Signals
