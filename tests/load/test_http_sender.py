"""OTLP over HTTP: what is sent, and what the answers mean."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from google.rpc.status_pb2 import Status

from penstock.load.http_sender import HttpSender, read_response
from penstock.load.plan import Endpoint, Plan
from penstock.load.sender import ACKNOWLEDGED, Answer, Outcome
from penstock.otel.signals import Signal
from tests.load.receiver import Reply, receiver

PROTOBUF = "application/x-protobuf"
BEARER = "secret-token"


def send(url: str, count: int = 1, **settings: str) -> list[Answer]:
    """The answers to requests on one connection."""

    async def run() -> list[Answer]:
        sender = HttpSender(Plan(**settings), Endpoint.parse(url))  # type: ignore[arg-type]
        answers = [await sender.send(Signal.LOGS, b"body") for _ in range(count)]
        await sender.close()
        return answers

    return asyncio.run(run())


def answer_to(reply: Reply) -> Answer:
    """What the sender makes of one reply."""
    with receiver(reply) as server:
        return send(server.url)[0]


def read(data: bytes) -> bytes:
    """The body that a response has."""

    async def run() -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return (await read_response(reader)).body

    return asyncio.run(run())


def test_request_is_posted_as_protobuf_with_its_headers() -> None:
    """The token and the namespace in theirs."""
    with receiver() as server:
        assert send(server.url, namespace="tests", token=BEARER) == [ACKNOWLEDGED]
        [got] = server.got
    assert (got.signal, got.body) == (Signal.LOGS, b"body")
    assert got.headers["content-type"] == PROTOBUF
    assert got.headers["x-penstock-namespace"] == "tests"
    assert got.headers["authorization"] == f"Bearer {BEARER}"


def test_neither_token_nor_namespace_is_sent_unasked() -> None:
    """The server has its defaults."""
    with receiver() as server:
        send(server.url)
        [got] = server.got
    assert not {"authorization", "x-penstock-namespace"} & set(got.headers)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_retryable_status_is_to_be_tried_again(status: int) -> None:
    """After the time that the server says."""
    answer = answer_to(Reply(status, {"Retry-After": "7"}))
    assert (answer.outcome, answer.retry_after_s) == (Outcome.RETRY, 7.0)


def test_retry_after_may_be_a_date() -> None:
    """One that is over means now."""
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    future = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    assert answer_to(Reply(503, {"Retry-After": past})).retry_after_s == 0.0
    wait_s = answer_to(Reply(503, {"Retry-After": future})).retry_after_s
    assert wait_s is not None
    assert wait_s > 3600
    assert answer_to(Reply(503, {"Retry-After": "soon"})).retry_after_s is None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 415, 500])
def test_other_errors_are_final(status: int) -> None:
    """With what the server's status says."""
    body = Status(code=3, message="no span has an id").SerializeToString()
    answer = answer_to(Reply(status, {"Content-Type": PROTOBUF}, body))
    assert answer == Answer(Outcome.REFUSED, f"HTTP {status}: no span has an id")


def test_error_without_a_status_is_quoted() -> None:
    """Proxies answer with text."""
    answer = answer_to(Reply(400, {"Content-Type": "text/plain"}, b"bad gateway configuration"))
    assert answer.message == "HTTP 400: bad gateway configuration"
    assert answer_to(Reply(400, {"Content-Type": PROTOBUF}, b"\xff\xff")).message.startswith("HTTP")


def test_partial_success_is_counted() -> None:
    """From the response's body."""
    body = Signal.LOGS.response(2, "two were bad")
    assert answer_to(Reply(200, {"Content-Type": PROTOBUF}, body)).rejected == 2


def test_connection_is_kept_and_opened_again_when_the_server_closes_it() -> None:
    """The next request has a new one."""
    replies = [Reply(), Reply(200, {"Connection": "close"}), Reply()]
    with receiver(*replies) as server:
        assert send(server.url, 3) == [ACKNOWLEDGED] * 3


def test_nobody_there_is_to_be_tried_again() -> None:
    """A server may be on its way."""
    with receiver() as server:
        url = server.url
    [answer] = send(url)
    assert answer.outcome is Outcome.RETRY
    assert "ConnectionRefused" in answer.message


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"SSH-2.0-x\r\n\r\n"])
def test_broken_answer_is_to_be_tried_again(said: bytes) -> None:
    """The connection with it is given up."""

    async def run() -> Answer:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"body")
            writer.write(said)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            sender = HttpSender(Plan(), Endpoint.parse(f"http://127.0.0.1:{port}"))
            answer = await sender.send(Signal.LOGS, b"body")
            await sender.close()
            return answer

    assert asyncio.run(run()).outcome is Outcome.RETRY


def test_chunked_body_is_put_together() -> None:
    """As some servers send it."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert read(head + b"4\r\nabcd\r\n2;x=y\r\nef\r\n0\r\nTrailer: 1\r\n\r\n") == b"abcdef"


def test_body_without_a_length_is_empty() -> None:
    """On a connection that is kept."""
    assert read(b"HTTP/1.1 204 No Content\r\n\r\n") == b""
