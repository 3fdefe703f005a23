"""gRPC through bare sockets: a call is acknowledged when its message has come whole."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.otel import Signal
from tests.server import http2
from tests.server.running import Server, serving, stored_names
from tests.server.samples import traces

T = Signal.TRACES
OK, INVALID, INTERNAL, NO_ANSWER = 0, 3, 13, None
_STATUS = re.compile(rb"grpc-status.([0-9]+)", re.DOTALL)
_CANCEL = http2.frame(http2.RESET, 0, 1, struct.pack(">I", 8))
_PING = http2.frame(http2.PING, 0, 0, b"the last")
_PONG = http2.frame(http2.PING, 1, 0, b"the last")


def message(name: str, flag: int = 0) -> bytes:
    """With its length in front."""
    return bytes([flag]) + struct.pack(">I", len(traces(name))) + traces(name)


def whole(payload: bytes) -> bytes:
    """Everything that the call sends."""
    return http2.frame(http2.DATA, http2.END_STREAM, 1, payload)


def part(payload: bytes) -> bytes:
    """And there would be more."""
    return http2.frame(http2.DATA, 0, 1, payload)


CASES = {
    "whole": (whole(message("whole")), OK, 1),
    "in frames": (
        part(message("in frames")[:9]) + whole(message("in frames")[9:]),
        OK,
        1,
    ),
    "whole, and the call not ended": (part(message("whole, and the call not ended")), OK, 1),
    "ends too early": (whole(message("ends too early")[:-3]), INVALID, 0),
    "ends in its length": (whole(message("ends in its length")[:3]), INVALID, 0),
    "nothing": (whole(b""), INVALID, 0),
    "reset": (part(message("reset")[:-3]) + _CANCEL, NO_ANSWER, 0),
    "marked as packed, and how is not said": (
        whole(message("marked as packed, and how is not said", flag=1)),
        INTERNAL,
        0,
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With its defaults."""
    with serving(tmp_path_factory.mktemp("grpc") / "data") as started:
        yield started


@pytest.mark.parametrize("title", CASES)
def test_only_a_whole_message_is_acknowledged(server: Server, title: str) -> None:
    """Its status, and what a segment holds of it."""
    frames, status, stored = CASES[title]
    assert converse(server, frames, ends=status is not NO_ANSWER) == status
    assert server.ask("POST", "/api/v1/flush", port="web").status == 200
    names = stored_names(Path(server.ready["data_dir"]), T)
    assert names.count(title) == stored


def converse(server: Server, frames: bytes, *, ends: bool) -> int | None:
    """The status of the call; None where it has none when a later ping is answered."""
    head = http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.request_headers(T.grpc_method))
    received = b""
    with server.socket("grpc") as connection:
        connection.sendall(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0) + head + frames)
        if not ends:
            connection.sendall(_PING)
        while (_STATUS.search(received) if ends else _PONG in received) in (None, False):
            found = connection.recv(65536)
            assert found, received
            received += found
    status = _STATUS.search(received)
    return None if status is None else int(status[1])
