"""The Flight port holds little for whoever sends much, sends slowly, or takes nothing."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as pf
import pytest

from penstock.otel import Signal
from tests.server.http2 import Connection
from tests.server.running import Server, resident_bytes, serving, until
from tests.server.samples import logs

L = Signal.LOGS
ONE, OTHER = "first-secret-token", "second-secret-token"
DO_GET = "/arrow.flight.protocol.FlightService/DoGet"
MIB = 1 << 20
ROOM = 400 * MIB
"""What the process may take in these tests: less than one of the messages that are sent to it."""
LARGE = 512 * MIB
BULK_BYTES = 12 * MIB


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With two tokens, little patience, and something to read."""
    folder = tmp_path_factory.mktemp("flight")
    (folder / "tokens").write_text(f"{ONE} *\n{OTHER} *\n")
    config: dict[str, Any] = {
        "workers": 1,
        "auth": {"tokens_file": str(folder / "tokens")},
        "limits": {"timeout": "5s", "flight_write": "2s", "flight_calls": 8},
    }
    with serving(folder / "data", config=config) as running:
        for _ in range(BULK_BYTES // (4 * MIB)):
            body = logs(*(os.urandom(MIB // 2).hex() for _ in range(4)))
            assert running.post(L, body, authorization=f"Bearer {ONE}").status == 200
        yield running


@pytest.fixture
def raw(server: Server) -> Iterator[Connection]:
    """A client that does what it likes."""
    connection = Connection(server.socket("flight"))
    yield connection
    connection.close()


def flight_bytes(server: Server) -> int:
    """The memory of the process of the Flight port."""
    for pid in server.pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"penstock.server.flight.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return resident_bytes(pid)
    raise AssertionError("there is no Flight process")


def announced(size: int) -> bytes:
    """The beginning of a message of so many bytes."""
    return b"\0" + size.to_bytes(4, "big")


def ticket(**asked: Any) -> bytes:
    """The message of DoGet."""
    text = json.dumps(asked).encode()
    assert len(text) < 126
    body = bytes([0x0A, len(text)]) + text
    return announced(len(body)) + body


def push(connection: Connection, stream: int) -> int:
    """Sends as much of a message without end as is taken, until the call is over."""
    piece, sent = bytes(16384), 0
    while stream not in connection.ended and sent < LARGE:
        sent += connection.send(stream, piece)
    return sent


def client(server: Server) -> pf.FlightClient:
    """An honest one."""
    return pf.connect(f"grpc://127.0.0.1:{server.ready['flight']}")


def options(token: str) -> pf.FlightCallOptions:
    """With a token."""
    return pf.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])


@pytest.mark.parametrize("token", [None, ONE], ids=["no token", "a token"])
def test_message_without_an_end_is_refused_before_it_is_there(
    server: Server, raw: Connection, token: str | None
) -> None:
    """Of half a GiB a few hundred KiB are taken, and the memory is what it was."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    raw.begin_call(1, DO_GET, **headers)
    raw.send(1, announced(LARGE))
    assert push(raw, 1) < 4 * MIB
    assert flight_bytes(server) < ROOM


def test_unfinished_messages_end_in_time(server: Server, raw: Connection) -> None:
    """Nobody holds a call open by sending half of what was announced."""
    for stream in (1, 3, 5):
        raw.begin_call(stream, DO_GET, authorization=f"Bearer {ONE}")
        raw.send(stream, announced(1000) + bytes(10))
    until(lambda: {1, 3, 5} <= raw.ended)
    with client(server) as honest:
        assert list(honest.list_actions(options(ONE)))


def test_who_takes_nothing_is_cut_off(server: Server, raw: Connection) -> None:
    """Its place and its part of the answer are free again."""
    for stream in (1, 3, 5):
        raw.begin_call(stream, DO_GET, authorization=f"Bearer {ONE}")
        raw.send(stream, ticket(table="logs", tiers=["hot", "warm"]))
    until(lambda: {1, 3, 5} <= raw.ended)
    assert flight_bytes(server) < 2 * ROOM  # it has made rows, which takes Arrow's pools
    with client(server) as honest:
        asked = pf.Ticket(json.dumps({"table": "logs", "tiers": ["hot", "warm"]}).encode())
        assert honest.do_get(asked, options(ONE)).read_all().num_rows == BULK_BYTES // MIB


def test_one_token_has_half_of_the_calls(server: Server) -> None:
    """For their whole life; another token comes in, and a place that is left is free."""
    asked = {"subscribe": "/default/logs", "partition": 0, "subscriber": "reader", "most": 1}
    with client(server) as first, contextlib.ExitStack() as streams:
        subscribed = json.dumps({**asked, "topic": "/default/logs"}).encode()
        assert list(first.do_action(pf.Action("register", subscribed), options(ONE)))
        held = [first.do_get(pf.Ticket(json.dumps(asked).encode()), options(ONE)) for _ in range(4)]
        for each in held:
            streams.callback(each.cancel)
            assert each.schema is not None  # it has begun
        with pytest.raises(pf.FlightUnavailableError, match="calls of this token"):
            list(first.list_actions(options(ONE)))
        assert list(first.list_actions(options(OTHER)))
        held[0].cancel()
        until(lambda: comes_in(first))


def comes_in(connected: pf.FlightClient) -> bool:
    """Whether there is a place for one call more."""
    try:
        return bool(list(connected.list_actions(options(ONE))))
    except pf.FlightUnavailableError:
        return False
