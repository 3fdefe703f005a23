"""Requests that do not end, and connections that do nothing: bounded, and nobody's worry.

Nothing is given up for being slow within the life of these tests: what is answered is answered
beside the hostile client.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest

from penstock.otel import Signal
from tests.edges.dense import large
from tests.patience import until
from tests.server import http2
from tests.server.running import PROTOBUF, Server, answer_of, resident_bytes, serving
from tests.server.samples import logs, traces

T, L = Signal.TRACES, Signal.LOGS
MIB = 2**20
MESSAGE = 15 * MIB
IN_FLIGHT = 64 * MIB
SETTLED_S = 2.0
LIMITS = {"timeout": "10m", "in_flight": f"{IN_FLIGHT // MIB}MiB", "disk_free": "1MiB"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One worker, in which four messages are read at once."""
    folder = tmp_path_factory.mktemp("unfinished") / "data"
    with serving(folder, "--workers=1", config={"limits": LIMITS}) as started:
        started.export(T, traces("first"))
        yield started


class Unfinished:
    """Calls whose messages never come to their end, on one connection."""

    def __init__(self, server: Server, calls: int) -> None:
        self.connection = http2.Connection(server.socket("grpc"))
        self.left = {2 * number + 1: MESSAGE - 100 for number in range(calls)}
        for stream in self.left:
            self.connection.begin_call(stream, T.grpc_method)
            self.connection.send(stream, b"\0" + MESSAGE.to_bytes(4, "big"))

    def push(self) -> int:
        """Sends as much as it is let; how many bytes that were."""
        sent = 0
        for stream, left in self.left.items():
            if left > 0 and stream not in self.connection.ended:
                size = self.connection.send(stream, bytes(min(left, 16_384)))
                self.left[stream] -= size
                sent += size
        return sent


@contextlib.contextmanager
def unfinished(server: Server, connections: int, calls: int) -> Iterator[list[Unfinished]]:
    """As many as that."""
    made = [Unfinished(server, calls) for _ in range(connections)]
    try:
        yield made
    finally:
        for each in made:
            each.connection.close()


def push(made: Sequence[Unfinished], most: int, worker: int) -> tuple[int, int]:
    """Sends so many bytes, or as many as are taken; how many that were, and the memory for them."""
    moved, taken, peak = time.monotonic(), 0, 0
    while taken < most and time.monotonic() - moved < SETTLED_S:
        sent = sum(each.push() for each in made)
        peak = max(peak, resident_bytes(worker))
        taken += sent
        if sent:
            moved = time.monotonic()
        else:
            time.sleep(0.01)
    return taken, peak


def test_unfinished_messages_of_a_connection_are_bounded_together(server: Server) -> None:
    """A gigabyte is offered; what is taken of it, and the memory for it, stay within the bound."""
    [worker] = server.workers()
    before = resident_bytes(worker)
    with unfinished(server, connections=1, calls=90) as hostile:
        taken, peak = push(hostile, 1000 * MIB, worker)
        assert taken < IN_FLIGHT
        assert peak - before < 2 * IN_FLIGHT
        for number in range(10):
            assert server.post(L, logs(f"beside {number}")).status == 200
            server.export(L, logs(f"beside {number}"))
        server.export(T, large(T, 8000))


def test_unfinished_messages_of_many_connections_are_bounded_together(server: Server) -> None:
    """Others are served all the same: whoever comes slowly leaves its place to them."""
    [worker] = server.workers()
    before = resident_bytes(worker)
    with unfinished(server, connections=8, calls=10) as hostile:
        for number in range(2):
            _, peak = push(hostile, IN_FLIGHT, worker)
            assert peak - before < 3 * IN_FLIGHT
            assert server.post(L, logs(f"beside {number}")).status == 200
            server.export(L, logs(f"beside {number}"))
        server.export(T, large(T, 8000))


def test_unfinished_bodies_of_a_client_leave_room_for_others(server: Server) -> None:
    """Over HTTP: its own are put off, a client at another address is served."""
    head = f"POST /v1/logs HTTP/1.1\r\nhost: localhost\r\ncontent-type: {PROTOBUF}\r\n"
    text = f"{head}content-length: {MESSAGE}\r\n\r\n".encode() + bytes(MESSAGE - 100)
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(server.socket()) for _ in range(3)]
        for connection in crowd:
            connection.sendall(text)
        body = large(L, 30_000)
        until(lambda: from_address(server, "127.0.0.1", body) == 429)
        assert from_address(server, "127.0.0.2", body) == 200
        assert from_address(server, "127.0.0.1", logs("small")) == 200


def from_address(server: Server, address: str, body: bytes) -> int:
    """What a client there is answered."""
    port = server.ready["http"]
    connection = http.client.HTTPConnection("127.0.0.1", port, source_address=(address, 0))
    with contextlib.closing(connection):
        connection.request("POST", L.http_path, body, {"content-type": PROTOBUF})
        return answer_of(connection.getresponse()).status


# --- connections -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For few connections, and not for long."""
    folder: Path = tmp_path_factory.mktemp("few") / "data"
    limits = {"connections": 20, "idle": "2s"}
    with serving(folder, "--workers=1", config={"limits": limits}) as started:
        yield started


def is_open(connection: socket.socket) -> bool:
    """Whether a server answers there with its settings; not one that it turned away."""
    connection.sendall(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0))
    with contextlib.suppress(ConnectionError):
        return bool(connection.recv(9))
    return False


def test_connections_beyond_the_bound_are_turned_away_over_grpc(small: Server) -> None:
    """And room that is given back is used again."""
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(small.socket("grpc")) for _ in range(40)]
        opened = 0
        for connection in crowd:
            with contextlib.suppress(ConnectionError):
                opened += is_open(connection)
        assert 1 <= opened <= 20

    def served() -> bool:
        with contextlib.suppress(grpc.RpcError):
            small.export(L, logs("after the crowd"))
            return True
        return False

    until(served)


def test_idle_connections_end(small: Server) -> None:
    """Over gRPC and HTTP: with or without a request before."""
    with small.socket("grpc") as silent, contextlib.closing(small.connection()) as kept:
        silent.sendall(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0))
        kept.request("POST", L.http_path, logs("one"), {"content-type": PROTOBUF})
        assert answer_of(kept.getresponse()).status == 200
        with contextlib.suppress(ConnectionError):
            while silent.recv(65_536):
                pass
        assert kept.sock.recv(1) == b""


def test_channel_that_was_idle_is_used_again(small: Server) -> None:
    """The client's library opens a new connection, and nobody notices."""
    with small.channel() as channel:
        method = channel.unary_unary(L.grpc_method)
        states: list[grpc.ChannelConnectivity] = []
        channel.subscribe(states.append)
        method(logs("first"), timeout=300)
        until(lambda: grpc.ChannelConnectivity.IDLE in states[1:])
        method(logs("second"), timeout=300, wait_for_ready=True)
