"""A body over the bound is answered 413 as soon as that is known, whatever of it has come."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.patience import PATIENCE_S
from tests.server.running import PROTOBUF, Server, serving

MIB = 2**20
LIMITS = {"request": "1MiB", "timeout": "10m"}
"""Nobody is given up for being slow within the life of a test."""
PORTS = pytest.mark.parametrize(
    ("port", "path"), [("http", "/v1/logs"), ("web", "/api/v1/query")], ids=["http", "web"]
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With all the patience in the world."""
    folder = tmp_path_factory.mktemp("large") / "data"
    with serving(folder, config={"limits": LIMITS}) as started:
        yield started


def head(path: str, *headers: str) -> bytes:
    """Of a request."""
    lines = [f"POST {path} HTTP/1.1", "host: localhost", f"content-type: {PROTOBUF}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def first_line(connection: socket.socket) -> bytes:
    """Of the answer."""
    with connection.makefile("rb") as file:
        return file.readline()


@PORTS
@pytest.mark.parametrize("sent", [b"", b"x", bytes(MIB // 2)], ids=["nothing", "a byte", "half"])
def test_announced_length_over_the_bound_is_answered_at_once(
    server: Server, port: str, path: str, sent: bytes
) -> None:
    """The client is answered while it still has most of its body."""
    with server.socket(port) as connection:
        connection.sendall(head(path, f"content-length: {2 * MIB}") + sent)
        assert first_line(connection).startswith(b"HTTP/1.1 413 ")


@PORTS
def test_body_that_is_held_back_is_never_asked_for(server: Server, port: str, path: str) -> None:
    """`Expect: 100-continue`: 413 is the first and only answer, and then comes the end."""
    with server.socket(port) as connection:
        connection.sendall(head(path, f"content-length: {2 * MIB}", "expect: 100-continue"))
        with connection.makefile("rb") as file:
            received = file.read()
    assert received.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in received
    assert b"connection: close" in received.lower()


@PORTS
def test_chunks_over_the_bound_are_answered_as_they_come(
    server: Server, port: str, path: str
) -> None:
    """Whoever never ends is told when the first byte is too many."""
    piece = b"%x\r\n%s\r\n" % (64 * 1024, bytes(64 * 1024))
    with server.socket(port) as connection:
        connection.sendall(head(path, "transfer-encoding: chunked") + piece * 17)
        assert first_line(connection).startswith(b"HTTP/1.1 413 ")


@PORTS
def test_client_that_sends_everything_first_sees_the_answer(
    server: Server, port: str, path: str
) -> None:
    """What comes after the answer is read and thrown away: no reset takes the answer away."""
    with server.socket(port) as connection:
        connection.sendall(head(path, f"content-length: {2 * MIB}"))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(bytes(MIB))
        assert first_line(connection).startswith(b"HTTP/1.1 413 ")


def test_other_refusals_do_not_wait_for_the_body_either(server: Server) -> None:
    """A path, a type or an encoding that nobody knows; the body never comes."""
    for text in (
        head("/nowhere", "content-length: 100"),
        head("/v1/logs", "content-length: 100", "content-encoding: br"),
    ):
        with server.socket() as connection:
            connection.settimeout(PATIENCE_S)
            connection.sendall(text)
            assert first_line(connection)[9:12] in (b"404", b"415")


def test_refused_request_that_is_whole_keeps_its_connection(server: Server) -> None:
    """The next request on it is answered."""
    with server.socket() as connection, connection.makefile("rb") as file:
        for _ in range(2):
            connection.sendall(head("/nowhere", "content-length: 3") + b"abc")
            assert file.readline().startswith(b"HTTP/1.1 404 ")
            length = 0
            while (line := file.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            file.read(length)
