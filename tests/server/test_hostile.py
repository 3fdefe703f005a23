"""Hostile input: refused with the right status, while memory is bounded and others are served."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
import zstandard

from penstock.otel import Signal
from tests.otel.samples import piece
from tests.server import http2
from tests.server.running import (
    JSON,
    PATIENCE_S,
    PROTOBUF,
    Answer,
    Server,
    answer_of,
    export,
    serving,
    stored_names,
    until,
)
from tests.server.samples import logs, sample, traces

T, L = Signal.TRACES, Signal.LOGS
Code = grpc.StatusCode
MIB = 2**20
LIMITS = {"timeout": "2s", "in_flight": "96MiB"}
MOST_MEMORY = 900 * MIB
"""Of all processes together. They take 250 MiB when nothing happens, and 150 MiB more when large
requests are checked."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With little patience."""
    folder = tmp_path_factory.mktemp("hostile") / "data"
    with serving(folder, config={"limits": LIMITS}) as started:
        yield started


@pytest.fixture
def unhurried(tmp_path: Path) -> Iterator[Server]:
    """With all the patience that many clients on a busy machine may need."""
    with serving(tmp_path / "data", config={"limits": {**LIMITS, "timeout": "10m"}}) as started:
        yield started


@pytest.fixture(autouse=True)
def _watched(server: Server) -> Iterator[None]:
    """Around every test: an honest client is served, and the memory stays within its bound."""
    ended, peak, answers = threading.Event(), 0, []

    def watch() -> None:
        nonlocal peak
        connection = server.connection()
        heads = {"content-type": PROTOBUF, "x-penstock-namespace": "honest"}
        while not ended.is_set() or 200 not in answers:
            peak = max(peak, server.resident_bytes())
            try:
                connection.request("POST", "/v1/logs", logs("honest"), heads)
                answers.append(answer_of(connection.getresponse()).status)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                connection.close()  # it was idle for too long, on a busy machine
            ended.wait(0.03)
        connection.close()

    with ThreadPoolExecutor(1) as thread:
        watching = thread.submit(watch)
        try:
            yield
        finally:
            ended.set()
            watching.result()
    assert set(answers) <= {200, 408, 429}  # 408: it was kept from sending for two seconds
    until(lambda: server.post(L, logs("honest")).status == 200)
    server.export(L, logs("honest"))
    assert peak < MOST_MEMORY
    assert len(server.pids()) >= 3
    assert "Traceback" not in server.errors


def code_of(call: Callable[[], Any]) -> Code:
    """How a call over gRPC ends."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code()  # type: ignore[no-any-return]
    return Code.OK


def in_parallel(count: int, work: Callable[[], Any]) -> list[Any]:
    """The same many times at once."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(lambda _: work(), range(count)))


# --- what is in a request ----------------------------------------------------------------------


def bomb(encoding: str, size: int) -> bytes:
    """Zeros that take next to nothing."""
    if encoding == "gzip":
        return gzip.compress(bytes(MIB)) * (size // MIB)
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join(packer.compress(bytes(MIB)) for _ in range(size // MIB)) + packer.flush()


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_bombs_over_http_are_too_large(server: Server, encoding: str) -> None:
    """A gigabyte each, many at once."""
    body = bomb(encoding, 1024 * MIB)
    answers = in_parallel(12, lambda: server.post(T, body, content_encoding=encoding).status)
    assert set(answers) <= {413, 429}
    assert 413 in answers


def test_bomb_of_json_is_too_large(server: Server) -> None:
    """Before it is read as JSON."""
    body = gzip.compress(b" " * MIB) * 100
    assert server.post(T, body, JSON, content_encoding="gzip").status == 413


@pytest.mark.parametrize("method", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_bombs_over_grpc_are_invalid(server: Server, method: grpc.Compression) -> None:
    """Compressed by the client's library: the transport does not unpack them."""
    zeros = bytes(65 * MIB)
    with server.channel() as channel:
        calls = in_parallel(
            4, lambda: code_of(lambda: export(channel, T, zeros, compression=method))
        )
    assert set(calls) <= {Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED}
    assert Code.INVALID_ARGUMENT in calls


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_bombs_within_a_message_are_invalid(server: Server, encoding: str) -> None:
    """Compressed by hand."""
    body = bomb(encoding, 1024 * MIB)
    assert code_of(lambda: server.export(T, body)) is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("sent", Signal)
def test_millions_of_empty_records_are_refused(server: Server, sent: Signal) -> None:
    """Four megabytes; parsed, they would be hundreds."""
    body = piece(0x0A, piece(0x12, b"\x12\0" * (2 * MIB)))
    assert in_parallel(4, lambda: server.post(sent, body).status) == [400] * 4
    assert code_of(lambda: server.export(sent, body)) is Code.INVALID_ARGUMENT
    assert "too many" in server.post(sent, body).body.decode("utf-8", "replace")


def test_millions_of_empty_attributes_are_refused(server: Server) -> None:
    """Within one record."""
    body = piece(0x0A, piece(0x12, piece(0x12, b"\x4a\0" * (2 * MIB))))
    assert server.post(T, body).status == 400
    assert code_of(lambda: server.export(T, body)) is Code.INVALID_ARGUMENT


def test_millions_of_empty_records_in_json_are_refused(server: Server) -> None:
    """They are three bytes each there."""
    records = b",".join([b"{}"] * (4 * MIB))
    body = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[' + records + b"]}]}]}"
    assert server.post(L, body, JSON).status == 400


@pytest.mark.parametrize("depth", [101, 5000, 300_000])
def test_deep_nesting_is_refused(server: Server, depth: int) -> None:
    """Arrays in arrays; the answer still reaches the client."""
    value = b""
    for _ in range(min(depth, 5000)):
        value = piece(0x2A, piece(0x0A, value))
    body = piece(0x0A, piece(0x12, piece(0x12, piece(0x2A, value))))
    assert server.post(L, body).status == 400
    assert code_of(lambda: server.export(L, body)) is Code.INVALID_ARGUMENT
    text = '{"arrayValue":{"values":[' * depth + "{}" + "]}}" * depth
    record = '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":' + text + "}]}]}]}"
    assert server.post(L, record.encode(), JSON).status == 400
    assert server.post(L, b"[" * depth, JSON).status == 400


def test_random_and_truncated_bodies_are_invalid(server: Server) -> None:
    """None of them is a crash, and no half of a request is stored."""
    random, whole = Random(7), traces(*map(str, range(20)))
    connection = server.connection()
    with server.channel() as channel:
        for turn in range(200):
            body = random.randbytes(random.randint(1, 300))
            if turn % 2:
                body = whole[: random.randint(1, len(whole) - 1)]
            for kind in (PROTOBUF, JSON):
                heads = {"content-type": kind, "x-penstock-namespace": "random"}
                encoding = {"content-encoding": random.choice(["gzip", "zstd", ""])}
                connection.request("POST", "/v1/traces", body, heads | encoding)
                assert answer_of(connection.getresponse()).status == 400, body
            code = code_of(lambda body=body: export(channel, T, body))  # type: ignore[misc]
            assert code is Code.INVALID_ARGUMENT, body
    connection.close()
    assert server.ask("POST", "/api/v1/flush", port="web").status == 200
    assert stored_names(Path(server.ready["data_dir"]), T, "random") == []


def test_numbers_of_json_are_no_way_to_hold_the_server(server: Server) -> None:
    """A number of a million digits is refused, not computed."""
    digits = b"9" * MIB
    for field in (b'"startTimeUnixNano"', b'"kind"'):
        for value in (digits, b'"' + digits + b'"', b"1e" + digits):
            span = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{%s:%s}]}]}]}' % (field, value)
            assert server.post(T, span, JSON).status == 400


# --- how a request comes -----------------------------------------------------------------------


def head(length: object, *more: str) -> bytes:
    """Of a request over HTTP."""
    lines = [
        "POST /v1/logs HTTP/1.1",
        "host: localhost",
        f"content-type: {PROTOBUF}",
        "x-penstock-namespace: by-hand",
        *([] if length is None else [f"content-length: {length}"]),
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def talk(server: Server, *parts: bytes, port: str = "http") -> bytes:
    """Sends the parts, and returns everything that comes back until the server ends it."""
    with server.socket(port) as connection, contextlib.suppress(ConnectionError):
        for part in parts:
            connection.sendall(part)
        received = b""
        with contextlib.suppress(ConnectionError):
            while found := connection.recv(65536):
                received += found
        return received
    return b""


@contextlib.contextmanager
def crowd(server: Server, count: int, port: str = "http") -> Iterator[list[socket.socket]]:
    """Many connections, closed at the end."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(server.socket(port)) for _ in range(count)]


def status_of(received: bytes) -> int:
    """Of the first answer; 0 where there is none."""
    return int(received.split(b" ", 2)[1]) if received else 0


def test_connections_that_say_nothing_are_closed(server: Server) -> None:
    """On every port; half-open ones look the same."""
    with crowd(server, 40, "http") as some, crowd(server, 40, "web") as others:
        assert {connection.recv(1) for connection in some + others} == {b""}


def test_heads_that_trickle_are_closed(server: Server) -> None:
    """A byte now and then does not keep a connection open."""
    with crowd(server, 40) as connections:
        assert trickle(connections, head(10, "x-long: " + "x" * 10_000))


def trickle(connections: list[socket.socket], text: bytes) -> bool:
    """A byte at a time, until the server has closed all of them."""
    for connection in connections:
        connection.setblocking(False)
    opened = set(connections)
    end = time.monotonic() + PATIENCE_S
    for at in range(len(text)):
        for connection in list(opened):
            try:
                connection.send(text[at : at + 1])
                if not connection.recv(65536):
                    opened.discard(connection)
            except BlockingIOError:
                continue
            except OSError:
                opened.discard(connection)
        if not opened or time.monotonic() > end:
            break
        time.sleep(0.05)
    return not opened


def test_bodies_that_trickle_are_closed(server: Server) -> None:
    """With 408; nothing is stored."""
    with crowd(server, 40) as connections:
        for connection in connections:
            connection.sendall(head(100_000))
        assert trickle(connections, logs("trickled") + bytes(10_000))
    assert status_of(talk(server, head(100), b"\x0a")) == 408


@pytest.mark.parametrize("path", ["/v1/logs", "/nowhere"])
def test_unwanted_bodies_that_trickle_are_closed(server: Server, path: str) -> None:
    """What is refused anyway holds no connection either."""
    text = head(100_000).replace(b"/v1/logs", path.encode()).replace(b"x-protobuf", b"x")
    with crowd(server, 20) as connections:
        for connection in connections:
            connection.sendall(text)
        assert trickle(connections, bytes(10_000))


def test_line_ends_keep_no_connection_open(server: Server) -> None:
    """After an answer, a line end now and then begins no request."""
    with crowd(server, 10) as connections:
        for connection in connections:
            connection.sendall(head(len(logs("a"))) + logs("a"))
            assert connection.recv(12) == b"HTTP/1.1 200"
        assert trickle(connections, b"\r\n" * 5000)


def test_endless_heads_are_refused(server: Server) -> None:
    """However they are long: the path, one line, many lines, or lines after a body in chunks."""
    long = b"x" * 200_000
    many = b"".join(b"x%d: y\r\n" % number for number in range(20_000))
    chunked = head(None, "transfer-encoding: chunked") + b"1\r\nx\r\n0\r\n"
    for text in (
        b"POST /" + long,
        head(0)[:-2] + b"x: " + long,
        head(0)[:-2] + many,
        chunked + many,
    ):
        assert status_of(talk(server, text)) in (0, 400, 414, 431)


@pytest.mark.parametrize(
    "text",
    [
        head("-1"),
        head("1e3"),
        head("1", "content-length: 2"),
        head("3", "transfer-encoding: chunked"),
        head(None, "transfer-encoding: chunked") + b"zz\r\n",
        head(None, "transfer-encoding: chunked") + b"f" * 16 + b"\r\n",
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"POST /v1/logs HTTP/9.9\r\n\r\n",
        bytes(1000),
        http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0),
    ],
    ids=range(11),
)
def test_what_is_no_request_is_refused_and_closed(server: Server, text: bytes) -> None:
    """Two lengths are no length: a proxy might have read the other one."""
    assert status_of(talk(server, text)) in (0, 400, 404, 405, 408, 413, 505)


def test_length_that_is_too_long_stores_nothing(server: Server) -> None:
    """The client ends before its request does."""
    with server.socket() as connection:
        connection.sendall(head(1000) + logs("half of a request"))
        connection.shutdown(socket.SHUT_WR)
        assert status_of(connection.recv(1000)) in (0, 408)
    assert server.ask("POST", "/api/v1/flush", port="web").status == 200
    names = stored_names(Path(server.ready["data_dir"]), L, "by-hand")
    assert "half of a request" not in names


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    """Good and bad ones, and none of them twice."""
    good, text = head(len(logs("in line"))) + logs("in line"), b""
    for number in range(300):
        text += head(3) + b"bad" if number % 3 == 0 else good
    with server.socket() as connection:
        sender = threading.Thread(target=connection.sendall, args=(text,))
        sender.start()
        statuses = []
        file = connection.makefile("rb")
        for _ in range(300):
            answer = read_answer(file)
            statuses.append(answer.status)
        sender.join()
        file.close()
    assert statuses == [400 if number % 3 == 0 else 200 for number in range(300)]


def read_answer(file: Any) -> Answer:
    """One of several on a connection."""
    status = int(file.readline().split(b" ")[1])
    headers = http.client.parse_headers(file)
    body = file.read(int(headers["content-length"]))
    return Answer(status, dict(headers.items()), body)


def test_many_large_bodies_at_once_are_put_off(server: Server) -> None:
    """Together they would be a gigabyte; most are told to come again before they are read."""

    def send(connection: socket.socket) -> int:
        with contextlib.suppress(OSError):
            connection.sendall(head(16 * MIB - 1) + bytes(16 * MIB - 2))
        with contextlib.suppress(OSError):
            return status_of(connection.recv(1000))
        return 0

    with crowd(server, 64) as connections, ThreadPoolExecutor(64) as threads:
        answers = list(threads.map(send, connections))
    assert set(answers) <= {0, 408, 429}
    assert 429 in answers


# --- the gRPC port -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_garbage_on_the_grpc_port_is_closed(server: Server, seed: int) -> None:
    """Whether it begins as HTTP/2 does, or not at all."""
    random = Random(seed)
    noise = random.randbytes(5000)
    frames = b"".join(
        http2.frame(random.randrange(12), random.randrange(256), random.randrange(9), noise[:99])
        for _ in range(50)
    )
    start = http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0)
    for text in (noise, head(0), start + noise, start + frames):
        with server.socket("grpc") as connection, contextlib.suppress(OSError):
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass


def test_streams_that_are_reset_at_once_cost_little(server: Server) -> None:
    """Begun and given up, ten thousand times on a connection."""
    block = http2.request_headers(T.grpc_method)
    with server.socket("grpc") as connection, contextlib.suppress(OSError):
        connection.sendall(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0))
        for first in range(1, 20_001, 200):
            text = b""
            for stream in range(first, first + 200, 2):
                text += http2.frame(http2.HEADERS, http2.END_HEADERS, stream, block)
                text += http2.frame(http2.RESET, 0, stream, b"\0\0\0\x08")
            connection.sendall(text)


def test_headers_without_end_are_refused_on_the_grpc_port(server: Server) -> None:
    """Continued for ever, they would fill the memory."""
    block = http2.header_block({"x": "y" * 16_000})
    with server.socket("grpc") as connection, contextlib.suppress(OSError):
        connection.sendall(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0))
        connection.sendall(http2.frame(http2.HEADERS, 0, 1, block))
        for _ in range(2000):
            connection.sendall(http2.frame(http2.CONTINUATION, 0, 1, block))


def test_grpc_message_that_does_not_end_is_given_up(server: Server) -> None:
    """Its time is that of any other request; what has arrived of it is let go."""
    connections = [http2.Connection(server.socket("grpc")) for _ in range(2)]
    streams = range(1, 21, 2)
    for connection in connections:
        for stream in streams:
            connection.begin_call(stream, T.grpc_method)
            connection.send(stream, b"\0" + (15 * MIB).to_bytes(4, "big"))

    def all_ended() -> bool:
        for connection in connections:
            for stream in streams:
                connection.send(stream, bytes(200))
        return all(set(streams) <= connection.ended for connection in connections)

    until(all_ended)
    for connection in connections:
        connection.close()


def test_metadata_that_is_too_long_is_refused(server: Server) -> None:
    """By the transport."""
    code = code_of(lambda: server.export(T, traces("a"), x_long="y" * 200_000))
    assert code is Code.RESOURCE_EXHAUSTED


# --- many of them ------------------------------------------------------------------------------


def test_five_hundred_clients_at_once_are_all_served(unhurried: Server) -> None:
    """400 over HTTP and 100 over gRPC, each with a connection of its own and ten requests."""
    server = unhurried

    async def over_http(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ready["http"])
        for turn in range(10):
            data = logs(f"http {number} {turn}")
            text = head(len(data)).replace(b"by-hand", b"crowd")
            writer.write(text + data)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()

    async def over_grpc(number: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        target = f"127.0.0.1:{server.ready['grpc']}"
        async with grpc.aio.insecure_channel(target, options) as channel:
            for turn in range(10):
                await channel.unary_unary(L.grpc_method)(
                    logs(f"grpc {number} {turn}"), metadata=(("x-penstock-namespace", "crowd"),)
                )

    async def all_of_them() -> None:
        await asyncio.gather(*map(over_http, range(400)), *map(over_grpc, range(100)))

    asyncio.run(all_of_them())
    assert server.ask("POST", "/api/v1/flush", port="web").status == 200
    names = stored_names(Path(server.ready["data_dir"]), L, "crowd")
    assert len(names) == len(set(names)) == 5000


def test_connections_beyond_the_bound_are_put_off(tmp_path: Path) -> None:
    """The others are served, and room that is given back is used again."""
    with serving(tmp_path / "data", config={"limits": {"connections": 20}}) as small:
        with crowd(small, 30):
            answer = small.post(L, logs("a"))
            assert answer.status in (429, 503)
            assert "retry-after" in answer.headers
        until(lambda: small.post(L, logs("a")).status == 200)


def test_namespaces_are_bounded(tmp_path: Path) -> None:
    """As many topics are made as may be, the rest is put off; those that are there go on."""
    most, config = 10, {"limits": {"topics": 10}}
    with serving(tmp_path / "data", "--workers=1", config=config) as started:

        def send(number: int) -> int:
            data, name = sample(T, "a"), f"namespace-{number}"
            return started.post(T, data, x_penstock_namespace=name).status

        with ThreadPoolExecutor(10) as threads:
            answers = list(threads.map(send, range(60)))
        assert set(answers) == {200, 429}
        assert answers.count(200) == most
        assert started.stop() == 0
    kept = answers.index(200)
    with serving(tmp_path / "data", "--workers=1", config=config) as started:
        assert send_default(started) == 429
        assert started.post(T, traces("b"), x_penstock_namespace=f"namespace-{kept}").status == 200


def send_default(server: Server) -> int:
    """A request for one topic more."""
    return server.post(T, traces("a")).status


def test_answers_to_hostile_input_repeat_little_of_it(server: Server) -> None:
    """Paths, types and encodings come back shortened; nothing is taken for HTML."""
    long = "x" * 30_000
    for answer in (
        server.ask("POST", f"/{long}", b""),
        server.post(T, b"", long),
        server.post(T, b"", content_encoding=long),
        server.post(T, b"", x_penstock_namespace=long),
    ):
        assert len(answer.body) < 2000
        assert answer.headers["content-type"] in (JSON, PROTOBUF)
        if answer.headers["content-type"] == JSON:
            assert json.loads(answer.body)["message"]
