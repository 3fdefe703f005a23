"""What clients without a token can do with bytes alone, before anybody reads what they mean.

One server; beside each attack others are answered. No test measures time: each looks at what the
server does with the bytes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.otel import Signal
from tests.patience import until
from tests.server import http2
from tests.server.running import PROTOBUF, Server, resident_bytes, serving
from tests.server.samples import traces

T = Signal.TRACES
POST = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\n"
EMPTY = f"{POST}Content-Length: 0\r\n\r\n".encode()
CHUNKED = f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode()
REFUSED = CHUNKED.replace(b"x-protobuf", b"x-nothing")
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One worker."""
    folder = tmp_path_factory.mktemp("wire") / "data"
    with serving(folder, "--workers=1") as started:
        yield started


def answers(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    got = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65_536):
            got += piece
    return bytes(got)


class Reading:
    """Reads the answers of a connection beside its sender, and counts them."""

    def __init__(self, connection: socket.socket) -> None:
        self.count = 0
        self._connection = connection
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self._connection.recv(65_536):
                self.count += piece.count(b"HTTP/1.1 200")

    def end(self) -> None:
        """Closes it."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()


@contextlib.contextmanager
def pipelined(server: Server, port: str, request: bytes, count: int) -> Iterator[list[Reading]]:
    """Four connections with so many requests each, all sent at once."""
    connections = [server.socket(port) for _ in range(4)]
    reading = [Reading(each) for each in connections]
    senders = [threading.Thread(target=_send, args=(each, request * count)) for each in connections]
    for sender in senders:
        sender.start()
    try:
        yield reading
    finally:
        for each in reading:
            each.end()
        for sender in senders:
            sender.join()


def _send(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)


@pytest.mark.parametrize(("port", "request_"), [("http", EMPTY), ("web", HEALTH)])
def test_others_are_answered_between_the_requests_of_one_connection(
    server: Server, port: str, request_: bytes
) -> None:
    """40,000 wait on four connections; one that comes after them does not wait for them."""
    count = 10_000
    with pipelined(server, port, request_, count) as crowd:
        while not all(each.count for each in crowd):
            pass
        for number in range(3):
            if port == "web":
                assert server.get("/healthz").status == 200
            else:
                assert server.post(T, traces(f"beside {number}")).status == 200
        assert sum(each.count for each in crowd) < 4 * count


def test_pipelined_requests_are_answered_to_the_last(server: Server) -> None:
    """Many more than one read holds, and the client closes its side behind them."""
    with server.socket() as connection:
        reading = Reading(connection)
        connection.sendall(EMPTY * 6000)
        connection.shutdown(socket.SHUT_WR)
        reading._thread.join()
        assert reading.count == 6000


def test_bodies_of_tiny_chunks_are_given_up(server: Server) -> None:
    """A chunk costs the same however small it is."""
    with server.socket() as connection:
        _send(connection, CHUNKED + b"1\r\n\0\r\n" * 20_000)
        assert answers(connection).startswith(b"HTTP/1.1 400 ")


def test_bodies_of_small_chunks_are_taken(server: Server) -> None:
    """Of a hundred bytes each, and many of them; or tiny ones, and few."""
    body = traces(*map(str, range(4000)))
    for size, part in ((100, body), (1, traces("one"))):
        pieces = [part[at : at + size] for at in range(0, len(part), size)]
        text = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces)
        with server.socket() as connection:
            connection.sendall(CHUNKED + text + b"0\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_what_follows_a_refusal_is_not_parsed(server: Server) -> None:
    """It is thrown away, and the client that reads last finds its answer."""
    with server.socket() as connection:
        connection.sendall(REFUSED + b"5\r\n")
        answer = connection.recv(100)
        assert answer.startswith(b"HTTP/1.1 415 ")
        connection.sendall(b"no chunk at all " * 10_000 + b"\r\n0\r\n\r\n")
        assert b"HTTP/1.1" not in answers(connection)


@pytest.mark.parametrize("port", ["http", "web"])
def test_head_has_a_hundred_fields(server: Server, port: str) -> None:
    """A hundred are taken, one more is not."""
    for count, status in ((99, b"200"), (100, b"431")):
        head = b"GET /healthz" if port == "web" else b"POST /v1/traces"
        lines = [head + b" HTTP/1.1", b"Host: localhost", *[b"a: b"] * (count - 3)]
        lines += [b"Content-Type: application/x-protobuf", b"Content-Length: 0", b"x: y", b"", b""]
        with server.socket(port) as connection:
            connection.sendall(b"\r\n".join(lines))
            assert connection.recv(100).startswith(b"HTTP/1.1 " + status)


# --- heads that do not end, over gRPC ------------------------------------------------------------

MIB = 2**20
FIELD = http2.header_block({"a": "b" * 50})
FLIGHT = "/arrow.flight.protocol.FlightService/DoGet"


def begin_head(server: Server, port: str = "grpc", *, settle: bool = False) -> socket.socket:
    """A call whose head is whole but for its end; `settle` acknowledges the server's settings."""
    connection = server.socket(port)
    path = FLIGHT if port == "flight" else T.grpc_method
    connection.sendall(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0))
    if settle:
        connection.recv(9)
        connection.sendall(http2.frame(http2.SETTINGS, 1, 0))
    connection.sendall(http2.frame(http2.HEADERS, 0, 1, http2.request_headers(path)))
    return connection


def flood(connection: socket.socket, size: int) -> int:
    """Goes on with the head in tiny frames; how many bytes were taken until the server ended it."""
    frames = http2.frame(http2.CONTINUATION, 0, 1, FIELD) * 400
    sent = 0
    with contextlib.suppress(OSError):
        while sent < size:
            connection.sendall(frames)
            sent += len(frames)
    return sent


@pytest.mark.parametrize("port", ["grpc", "flight"])
def test_heads_that_do_not_end_are_cut_off(server: Server, port: str) -> None:
    """Of clients that never acknowledge the bound on them: 20 MB each are offered, by many."""
    taken = []
    for _ in range(3):
        with begin_head(server, port) as connection:
            taken.append(flood(connection, 20_000_000))
    assert min(taken) < 20_000_000
    server.export(T, traces("beside"))
    assert server.get("/healthz").status == 200


def test_head_of_a_settled_client_is_bounded(server: Server) -> None:
    """Who has acknowledged it may send on; it is counted, and not kept."""
    [worker] = server.workers()
    before = resident_bytes(worker)
    with begin_head(server, settle=True) as connection:
        flood(connection, 20_000_000)
        assert resident_bytes(worker) - before < 30 * MIB
        server.export(T, traces("beside"))


def test_client_that_does_not_settle_is_let_go(server: Server) -> None:
    """Its head is small, and does not end either."""
    with begin_head(server) as connection:
        assert b"settings_timeout" in answers(connection)


def test_first_calls_of_a_client_are_answered(server: Server) -> None:
    """Large ones, and many at once on a connection that is new."""
    body = traces("large", padding=8 * MIB)
    with server.channel() as channel:
        method = channel.unary_unary(T.grpc_method)
        calls = [method.future(body, timeout=300)]
        calls += [method.future(traces(f"c{n}", padding=60_000), timeout=300) for n in range(60)]
        for call in calls:
            call.result()


def test_nothing_that_a_client_sent_is_repeated_on_stderr(server: Server) -> None:
    """The refusal of metadata that is too large names none of it, and the library says nothing."""
    block = http2.request_headers(T.grpc_method) + FIELD * 900
    with server.socket("grpc") as raw:
        connection = http2.Connection(raw)
        half = len(http2.request_headers(T.grpc_method)) + len(FIELD) * 200
        raw.sendall(http2.frame(http2.HEADERS, 0, 1, block[:half]))
        for at in range(half, len(block), 16_000):
            raw.sendall(http2.frame(http2.CONTINUATION, 0, 1, block[at : at + 16_000]))
        raw.sendall(http2.frame(http2.CONTINUATION, http2.END_HEADERS, 1))
        until(lambda: connection.ended)
        connection.close()
    assert "hpack" not in server.errors
    assert "bbbb" not in server.errors
