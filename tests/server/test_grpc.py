"""OTLP over gRPC, with something that stands in for what is behind it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import zstandard
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from penstock.otel import Signal
from penstock.server.auth import Gate
from penstock.server.configuration.config import Limits
from penstock.server.receiving.admission import Admission
from penstock.server.receiving.grpc import OtlpGrpc, options
from penstock.server.receiving.ingest import Intake
from penstock.server.refusals import Cause, Refusal
from tests.server.asgi import FakeChecks, FakeIngest
from tests.server.running import PATIENCE_S
from tests.server.samples import sample, traces

T = Signal.TRACES
Code = grpc.StatusCode
BODY = traces("a span", padding=2000)
Failed = grpc.aio.AioRpcError


class Client:
    """The server and a channel to it."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        ingest: FakeIngest,
        checks: FakeChecks,
        bounds: Admission,
    ) -> None:
        self.channel = channel
        self.checks = checks
        self.ingest = ingest
        self.admission = bounds

    async def export(
        self, data: bytes, sent: Signal = T, compression: Any = None, **metadata: str
    ) -> Any:
        """A request."""
        method = self.channel.unary_unary(sent.grpc_method)
        pairs = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
        answer = await method(data, metadata=pairs, compression=compression, timeout=PATIENCE_S)
        return sent.response_class.FromString(answer)

    async def failure(self, data: bytes, **more: Any) -> tuple[Code, Status]:
        """Why it is refused: the code, and the status in the details."""
        with pytest.raises(Failed) as failed:
            await self.export(data, **more)
        found = dict(failed.value.trailing_metadata() or ())
        status = Status.FromString(found["grpc-status-details-bin"])
        assert status.code == failed.value.code().value[0]
        assert status.message == failed.value.details()
        return failed.value.code(), status


@contextlib.asynccontextmanager
async def serving(folder: Path, tokens: Path | None, **limits: Any) -> AsyncIterator[Client]:
    """On a free port."""
    bounds = Limits(**{"disk_free": 0, "memory": None, **limits})
    ingest, admission = FakeIngest(), Admission(bounds, folder)
    server = grpc.aio.server(options=options(bounds))
    checks = FakeChecks(bounds)
    otlp = OtlpGrpc(Intake(ingest, Gate(tokens), admission, checks, bounds))  # type: ignore[arg-type]
    server.add_generic_rpc_handlers(otlp.handlers())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Client(channel, ingest, checks, admission)
    finally:
        await server.stop(None)


Test = Callable[[Client], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Runs a test with a server; keywords are its limits."""

    def run(test: Test, tokens: Path | None = None, **limits: Any) -> None:
        async def all_of_it() -> None:
            async with serving(tmp_path, tokens, **limits) as client:
                await test(client)

        asyncio.run(all_of_it())

    return run


def test_request_goes_in_as_it_is(run: Callable[..., None]) -> None:
    """And is answered with the empty response of its signal."""

    async def test(client: Client) -> None:
        for sent in Signal:
            assert await client.export(sample(sent, "a"), sent) == sent.response_class()
        taken = [(sent, "default", sample(sent, "a")) for sent in Signal]
        assert client.ingest.taken == taken

    run(test)


def test_compressed_message_is_decompressed(run: Callable[..., None]) -> None:
    """By the client's library, with every method that it has; or by the client itself."""

    async def test(client: Client) -> None:
        for method in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            await client.export(BODY, compression=method)
        await client.export(gzip.compress(BODY, mtime=0))
        await client.export(zstandard.compress(BODY))
        assert [data for _, _, data in client.ingest.taken] == [BODY] * 4

    run(test)


@pytest.mark.parametrize("method", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_bomb_is_invalid(run: Callable[..., None], method: grpc.Compression) -> None:
    """It is not unpacked beyond its bound."""

    async def test(client: Client) -> None:
        code, status = await client.failure(bytes(10_000_001), compression=method)
        assert code is Code.INVALID_ARGUMENT
        assert "10000000 bytes" in status.message
        assert client.ingest.taken == []

    run(test, decompressed=10_000_000)


def test_damaged_compression_is_invalid(run: Callable[..., None]) -> None:
    """The client must not send it again."""

    async def test(client: Client) -> None:
        for data in (gzip.compress(BODY, mtime=0)[:-3], zstandard.compress(BODY)[:-3]):
            assert (await client.failure(data))[0] is Code.INVALID_ARGUMENT

    run(test)


def test_message_over_the_bound_is_refused(run: Callable[..., None]) -> None:
    """By one byte with words; by many the transport refuses it, and it is not to be sent again."""

    async def test(client: Client) -> None:
        await client.export(bytes(1000))
        code, status = await client.failure(bytes(1001))
        assert code is Code.INVALID_ARGUMENT
        assert "1000" in status.message
        with pytest.raises(Failed) as failed:
            await client.export(bytes(100_000))
        assert failed.value.code() is Code.RESOURCE_EXHAUSTED
        assert "grpc-status-details-bin" not in dict(failed.value.trailing_metadata() or ())

    run(test, request=1000)


@pytest.mark.parametrize(
    ("cause", "code", "wait"),
    [
        (Cause.BUSY, Code.RESOURCE_EXHAUSTED, 1.5),
        (Cause.UNAVAILABLE, Code.UNAVAILABLE, 5.0),
        (Cause.INVALID, Code.INVALID_ARGUMENT, None),
    ],
)
def test_refusal_has_its_code_and_details(
    run: Callable[..., None], cause: Cause, code: Code, wait: float | None
) -> None:
    """With RetryInfo where trying again may help."""

    async def test(client: Client) -> None:
        client.ingest.error = Refusal(cause, "because é", retry_after_s=wait)
        found, status = await client.failure(BODY)
        assert (found, status.message) == (code, "because é")
        info = RetryInfo()
        assert [detail.Unpack(info) for detail in status.details] == [True] * bool(wait)
        assert info.retry_delay.ToMilliseconds() == (wait or 0) * 1000

    run(test)


@pytest.mark.parametrize(
    ("error", "code"),
    [(OSError("disk on fire"), Code.UNAVAILABLE), (ZeroDivisionError("secret"), Code.INTERNAL)],
)
def test_error_that_nobody_expected_has_a_code_too(
    run: Callable[..., None], error: Exception, code: Code
) -> None:
    """What may pass is retryable; what went wrong inside is for the log, not for the client."""

    async def test(client: Client) -> None:
        client.ingest.error = error
        found, status = await client.failure(BODY)
        assert found is code
        assert str(error) not in status.message
        assert client.admission.in_flight_bytes == 0

    run(test)


def test_long_message_of_a_refusal_reaches_the_client(run: Callable[..., None]) -> None:
    """Trailers have a bound of 8 KiB; beyond it the client would see another code."""

    async def test(client: Client) -> None:
        client.ingest.error = Refusal(Cause.INVALID, "attributes[0].value." * 1000)
        with pytest.raises(Failed) as failed:
            await client.export(BODY)
        assert failed.value.code() is Code.INVALID_ARGUMENT
        assert failed.value.details().startswith("attributes[0]")

    run(test)


def test_partial_success_is_told(run: Callable[..., None]) -> None:
    """As a success with a message."""

    async def test(client: Client) -> None:
        client.checks.rejected, client.checks.text = 2, "two are wrong"
        partial = (await client.export(BODY)).partial_success
        assert (partial.rejected_spans, partial.error_message) == (2, "two are wrong")

    run(test)


def test_namespace_comes_from_the_metadata(run: Callable[..., None]) -> None:
    """Or it is `default`."""

    async def test(client: Client) -> None:
        await client.export(BODY, x_penstock_namespace="shop")
        assert client.ingest.taken == [(T, "shop", BODY)]

    run(test)


def test_token_is_needed_for_every_method(run: Callable[..., None], tmp_path: Path) -> None:
    """UNAUTHENTICATED without one, PERMISSION_DENIED for another namespace."""
    tokens = tmp_path / "tokens"
    tokens.write_text("a-good-secret shop\n")

    async def test(client: Client) -> None:
        right = "Bearer a-good-secret"
        for sent in Signal:
            data = sample(sent, "a")
            assert (await client.failure(data, sent=sent))[0] is Code.UNAUTHENTICATED
            wrong = await client.failure(data, sent=sent, authorization="Bearer another-secret")
            assert wrong[0] is Code.UNAUTHENTICATED
            other = {"authorization": right, "x_penstock_namespace": "n" * 5000}
            assert (await client.failure(data, sent=sent, **other))[0] is Code.PERMISSION_DENIED
            await client.export(data, sent, authorization=right)
        assert [namespace for _, namespace, _ in client.ingest.taken] == ["shop"] * 3

    run(test, tokens=tokens)


def test_bytes_are_held_until_the_answer(run: Callable[..., None]) -> None:
    """Others wait for room, and are told how long."""

    async def test(client: Client) -> None:
        go, began = asyncio.Event(), asyncio.Event()

        async def take(*_: Any) -> None:
            began.set()
            await go.wait()

        client.ingest.take = take  # type: ignore[method-assign]
        first = asyncio.create_task(client.export(bytes(900)))
        await began.wait()
        assert client.admission.in_flight_bytes == 900
        assert (await client.failure(bytes(200)))[0] is Code.RESOURCE_EXHAUSTED
        go.set()
        await first
        assert client.admission.in_flight_bytes == 0

    run(test, in_flight=1000)


def test_cancelled_request_holds_nothing(run: Callable[..., None]) -> None:
    """A client that goes away gives its room back."""

    async def test(client: Client) -> None:
        began = asyncio.Event()

        async def take(*_: Any) -> None:
            began.set()
            await asyncio.Event().wait()
            raise AssertionError

        client.ingest.take = take  # type: ignore[method-assign]
        call = asyncio.create_task(client.export(bytes(900)))
        await began.wait()
        call.cancel()
        while client.admission.in_flight_bytes:
            await asyncio.sleep(0.01)

    run(test)


def test_refused_requests_are_let_go(run: Callable[..., None]) -> None:
    """Soon, and not when memory is next collected: each may be large."""

    async def test(client: Client) -> None:
        client.ingest.error = Refusal(Cause.BUSY, "later", retry_after_s=1.0)
        data = bytes(10**6)
        await client.failure(data)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(10):
                await client.failure(data)
            async with asyncio.timeout(PATIENCE_S):  # the transport takes a moment
                while tracemalloc.get_traced_memory()[0] > 3 * 10**6:
                    await asyncio.sleep(0.01)
        finally:
            tracemalloc.stop()
            gc.enable()

    run(test)


def test_other_methods_are_unimplemented(run: Callable[..., None]) -> None:
    """As gRPC says it."""

    async def test(client: Client) -> None:
        for method in (f"/{T.service}/Import", "/x.Y/Export"):
            with pytest.raises(Failed) as failed:
                await client.channel.unary_unary(method)(BODY)
            assert failed.value.code() is Code.UNIMPLEMENTED

    run(test)
