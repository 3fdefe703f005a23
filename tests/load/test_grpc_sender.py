"""OTLP over gRPC: what is sent, and what the status codes mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from penstock.load.grpc_sender import GrpcSender
from penstock.load.plan import Endpoint, Plan
from penstock.load.sender import ACKNOWLEDGED, Answer, Outcome
from penstock.otel.signals import Signal

Handler = Callable[[bytes, Any], Any]
BEARER = "secret-token"


def send(handler: Handler, signal: Signal = Signal.TRACES, **settings: str) -> Answer:
    """The answer to one request to a server with that handler for every signal."""

    async def run() -> Answer:
        server = grpc.aio.server()
        for each in Signal:
            method = {"Export": grpc.unary_unary_rpc_method_handler(handler)}
            generic = grpc.method_handlers_generic_handler(each.service, method)
            server.add_generic_rpc_handlers([generic])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        plan = Plan(**settings)  # type: ignore[arg-type]
        sender = GrpcSender(plan, Endpoint.parse(f"127.0.0.1:{port}"))
        answer = await sender.send(signal, b"body")
        await sender.close()
        await server.stop(None)
        return answer

    return asyncio.run(run())


def refusing(code: grpc.StatusCode, retry_ms: int | None = None) -> Handler:
    """A handler that refuses."""
    status = Status(code=code.value[0], message="no")
    if retry_ms is not None:
        delay = Duration()
        delay.FromMilliseconds(retry_ms)
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    details = (("grpc-status-details-bin", status.SerializeToString()),)

    async def handle(_: bytes, context: Any) -> bytes:
        await context.abort(code, "no", details)
        return b""

    return handle


@pytest.mark.parametrize("signal", Signal)
def test_request_goes_to_its_service_with_its_metadata(signal: Signal) -> None:
    """The token and the namespace among it."""
    seen: dict[str, Any] = {}

    async def handle(data: bytes, context: Any) -> bytes:
        seen.update(dict(context.invocation_metadata()), body=data)
        return b""

    assert send(handle, signal, namespace="tests", token=BEARER) == ACKNOWLEDGED
    assert seen["body"] == b"body"
    assert seen["x-penstock-namespace"] == "tests"
    assert seen["authorization"] == f"Bearer {BEARER}"


@pytest.mark.parametrize(
    "code",
    ["CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"],
)
def test_retryable_code_is_to_be_tried_again(code: str) -> None:
    """As OTLP lists them."""
    answer = send(refusing(grpc.StatusCode[code]))
    assert answer == Answer(Outcome.RETRY, f"{code}: no")


@pytest.mark.parametrize(
    "code",
    ["INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "INTERNAL"],
)
def test_other_codes_are_final(code: str) -> None:
    """Whatever else they say."""
    answer = send(refusing(grpc.StatusCode[code], retry_ms=10))
    assert (answer.outcome, answer.message) == (Outcome.REFUSED, f"{code}: no")


def test_exhausted_server_is_tried_again_when_it_says_so() -> None:
    """After the time in its RetryInfo."""
    answer = send(refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_ms=1500))
    assert (answer.outcome, answer.retry_after_s) == (Outcome.RETRY, 1.5)


def test_exhausted_server_that_says_nothing_is_final() -> None:
    """The request may be too large for ever."""
    assert send(refusing(grpc.StatusCode.RESOURCE_EXHAUSTED)).outcome is Outcome.REFUSED


def test_partial_success_is_counted() -> None:
    """From the response."""

    async def handle(_: bytes, __: Any) -> bytes:
        return Signal.TRACES.response(4, "four were bad")

    assert send(handle).rejected == 4


def test_nobody_there_is_to_be_tried_again() -> None:
    """A server may be on its way."""

    async def run() -> Answer:
        sender = GrpcSender(Plan(), Endpoint.parse("127.0.0.1:1"))
        answer = await sender.send(Signal.TRACES, b"body")
        await sender.close()
        return answer

    assert asyncio.run(run()).outcome is Outcome.RETRY
