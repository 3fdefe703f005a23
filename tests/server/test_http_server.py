"""Connections with patience that ends, and sockets that workers share."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from penstock.children.guarding import Guarded
from penstock.server.http.protocol import HEAD_BYTES, http_protocol
from penstock.server.http.server import bind, reserve
from tests.server.running import PATIENCE_S

HOST = "127.0.0.1"


class Transport(asyncio.Transport):
    """Takes down what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = asyncio.Event()

    def write(self, data: Any) -> None:
        """As a socket would."""
        self.written += data

    def close(self) -> None:
        """In order."""
        self.ended.set()

    def abort(self) -> None:
        """At once."""
        self.ended.set()

    def is_closing(self) -> bool:
        """Either of them."""
        return self.ended.is_set()

    def pause_reading(self) -> None:
        """Nothing to pause."""

    def resume_reading(self) -> None:
        """Nothing to resume."""


async def answer(_: Any, receive: Any, send: Any) -> None:
    """An application that reads a body and answers."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-length", b"4")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"fine"})


Test = Callable[[Any, Transport], Awaitable[None]]


def connected(test: Test, timeout_s: float = PATIENCE_S, *, stopping: bool = False) -> None:
    """Runs a test with one connection."""

    async def run() -> None:
        made: Any = http_protocol(timeout_s, answers_half_closed=True)
        config = uvicorn.Config(answer, http=made, ws="none", log_config=None)
        config.load()
        protocol: Any = config.http_protocol_class
        protocol.owner = uvicorn.Server(config)
        protocol.owner.should_exit = stopping
        transport = Transport()
        made = protocol(config=config, server_state=ServerState(), app_state={})
        made.connection_made(transport)
        await asyncio.wait_for(test(made, transport), PATIENCE_S)
        made.connection_lost(None)

    asyncio.run(run())


HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\n"
PIECE = b"x" * 1000


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"POST /", PIECE),
        (HEAD + b"name: ", PIECE),
        (HEAD + b"na", PIECE),
        (HEAD, b"name: " + PIECE + b"\r\n"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"name: " + PIECE + b"\r\n"),
    ],
    ids=["path", "value", "name", "many", "after the body"],
)
def test_head_is_bounded_however_it_grows(start: bytes, piece: bytes) -> None:
    """414 or 431, and the connection ends; what is shorter is read on."""

    async def test(protocol: Any, transport: Transport) -> None:
        protocol.data_received(start)
        for _ in range(HEAD_BYTES // 1100):
            protocol.data_received(piece)
        assert not transport.is_closing()
        for _ in range(HEAD_BYTES // 1000):
            if not transport.is_closing():
                protocol.data_received(piece)
        assert transport.written.startswith((b"HTTP/1.1 414 ", b"HTTP/1.1 431 "))
        assert transport.is_closing()

    connected(test)


def test_many_headers_at_once_are_bounded() -> None:
    """Though they come in one piece."""

    async def test(protocol: Any, transport: Transport) -> None:
        protocol.data_received(HEAD + (b"name: " + PIECE + b"\r\n") * 80 + b"\r\n")
        assert transport.written.startswith(b"HTTP/1.1 431 ")

    connected(test)


def test_body_is_no_part_of_the_head() -> None:
    """Large bodies, and many requests in a piece, are not taken for one."""

    async def test(protocol: Any, transport: Transport) -> None:
        body = b"x" * 200_000
        protocol.data_received(HEAD + b"content-length: 200000\r\n\r\n" + body)
        request = HEAD + b"content-length: 0\r\n\r\n"
        protocol.data_received(request * 5000 + HEAD)
        protocol.data_received(b"content-length: 0\r\n\r\n")
        while transport.written.count(b"HTTP/1.1 200 ") < 5002:
            await asyncio.sleep(0)
        assert not transport.is_closing()

    connected(test)


@pytest.mark.parametrize("text", [b"", b"POST", HEAD, b"\r\n"])
def test_connection_without_a_request_ends(text: bytes) -> None:
    """Whatever it has sent of one."""

    async def test(protocol: Any, transport: Transport) -> None:
        if text:
            protocol.data_received(text)
        await transport.ended.wait()
        assert b"200" not in transport.written

    connected(test, 0.05)


def test_line_ends_after_an_answer_keep_nothing_open() -> None:
    """They begin no request."""

    async def test(protocol: Any, transport: Transport) -> None:
        protocol.data_received(HEAD + b"content-length: 0\r\n\r\n")
        while not transport.written.endswith(b"fine"):
            await asyncio.sleep(0)
        protocol.data_received(b"\r\n")
        await transport.ended.wait()

    connected(test, 0.05)


def test_request_under_way_has_no_such_end() -> None:
    """The time of its body is the application's to look at."""

    async def test(protocol: Any, transport: Transport) -> None:
        protocol.data_received(HEAD + b"content-length: 1\r\n\r\n")
        await asyncio.sleep(0.1)
        protocol.data_received(b"x")
        while not transport.written.endswith(b"fine"):
            await asyncio.sleep(0)
        assert not transport.is_closing()

    connected(test, 0.02)


def test_connection_that_comes_while_the_server_stops_is_closed() -> None:
    """Nobody else would tell it to go."""

    async def test(_: Any, transport: Transport) -> None:
        await transport.ended.wait()

    connected(test, stopping=True)


def test_worker_that_is_not_there_is_not_waited_for() -> None:
    """Whoever asks for its report hears at once that there is none."""
    child = Guarded("penstock.server.worker", "worker 0", {}, deadline_s=1)
    assert asyncio.run(child.ask("report", PATIENCE_S)) is None


def port_of(bound: socket.socket) -> int:
    """The one that was picked."""
    return int(bound.getsockname()[1])


def test_workers_share_a_port() -> None:
    """The supervisor reserves it, each worker binds it again."""
    with reserve(HOST, 0) as first:
        port = port_of(first)
        with bind(HOST, port) as one, bind(HOST, port) as two:
            one.listen()
            two.listen()


def test_port_that_somebody_listens_on_cannot_be_reserved() -> None:
    """Even if that one would share it: it is another server."""
    with bind(HOST, 0) as other:
        other.listen()
        with pytest.raises(OSError, match=f"port {port_of(other)} of {HOST}") as failed:
            reserve(HOST, port_of(other))
    assert failed.value.errno == errno.EADDRINUSE


def test_port_of_a_server_that_just_ended_can_be_reserved() -> None:
    """Its connections may linger."""
    with bind(HOST, 0) as listening:
        port = port_of(listening)
        listening.listen()
        with socket.create_connection((HOST, port)) as client:
            accepted, _ = listening.accept()
            accepted.close()
            assert client.recv(1) == b""
    with reserve(HOST, port) as again:
        assert port_of(again) == port


def test_accepted_connections_are_known_as_tcp() -> None:
    """Or asyncio would leave their short answers waiting for company."""
    with bind(HOST, 0) as listening:
        listening.listen()
        with socket.create_connection((HOST, port_of(listening))):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.proto == socket.IPPROTO_TCP


def test_address_of_nobody_is_refused_with_its_name() -> None:
    """One sentence for the user."""
    with pytest.raises(OSError, match=r"port 0 of 192\.0\.2\.1"):
        reserve("192.0.2.1", 0)


def test_addresses_of_version_six_are_taken() -> None:
    """Where the machine has them."""
    try:
        with reserve("::1", 0) as bound:
            assert bound.family == socket.AF_INET6
    except OSError:
        pytest.skip("there is no IPv6 here")
