"""100,000 hostile requests of every kind beside honest clients, who do not notice.

`HOSTILE_REQUESTS` says how many, `HOSTILE_SECONDS` for how long at the most. Hostile clients have a
token of their own, as honest ones have.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from penstock.otel import Signal
from tests.edges.dense import dense, dense_json, large, packed
from tests.server import http2
from tests.server.running import JSON, PROTOBUF, Server, resident_bytes, serving
from tests.server.samples import logs

T, L = Signal.TRACES, Signal.LOGS
MIB = 2**20
REQUESTS = int(os.environ.get("HOSTILE_REQUESTS", "100000"))
SECONDS = float(os.environ.get("HOSTILE_SECONDS", "1800"))
QUIET_S = min(20.0, SECONDS)
FLOOR_S = 0.05
"""A quiet run may be quicker than a busy machine lets anybody be."""
MEMORY = 1024 * MIB
HONEST, HOSTILE, OVERSEER = "honest-token", "hostile-token", "overseer-token"
ENDS: frozenset[str] = frozenset(
    [
        "400",
        "408",
        "413",
        "415",
        "429",
        "503",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "RESOURCE_EXHAUSTED",
        "gone",
    ]
)
"""How a hostile request may end; 200 for those that are only large."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One worker, with tokens and a bound on its memory."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{HONEST} honest\n{HOSTILE} hostile\n{OVERSEER} *\n")
    tokens.chmod(0o600)
    config = {
        "auth": {"tokens_file": str(tokens)},
        "limits": {"memory": f"{MEMORY}B", "in_flight": "128MiB", "timeout": "10s"},
        "retention": {"size_cap": "1GiB", "size_cap_policy": "drop_oldest"},
        "lake": {"enabled": False},
    }
    with serving(tmp_path / "data", "--workers=1", config=config) as started:
        yield started


# --- hostile -----------------------------------------------------------------------------------


def over_http(body: bytes, kind: str = PROTOBUF, **headers: str) -> Callable[[Server], str]:
    """A request that is refused, or costs much."""
    sent = L if kind == JSON else T

    def send(server: Server) -> str:
        heads = {"authorization": f"Bearer {HOSTILE}", **headers}
        return str(server.post(sent, body, kind, **heads).status)

    return send


def over_grpc(body: bytes) -> Callable[[Server], str]:
    """The same."""

    def send(server: Server) -> str:
        try:
            server.export(T, body, authorization=f"Bearer {HOSTILE}")
        except grpc.RpcError as error:
            return str(error.code().name)
        return "200"

    return send


def announced(server: Server) -> str:
    """A gigabyte is announced, and a part of it sent."""
    head = f"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: {PROTOBUF}\r\n"
    head += f"authorization: Bearer {HOSTILE}\r\ncontent-length: {1024 * MIB}\r\n\r\n"
    with server.socket() as connection:
        connection.sendall(head.encode() + bytes(1000))
        return connection.recv(100).split(b" ", 2)[1].decode()


def unfinished(server: Server) -> str:
    """Calls whose messages do not end."""
    connection = http2.Connection(server.socket("grpc"))
    bearer = {"authorization": f"Bearer {HOSTILE}"}
    for stream in range(1, 20, 2):
        connection.begin_call(stream, T.grpc_method, **bearer)
        connection.send(stream, b"\0" + (15 * MIB).to_bytes(4, "big"))
        connection.send(stream, bytes(16_384))
    connection.close()
    return "gone"


COSTLY: dict[str, Callable[[Server], str]] = {
    "gzip": over_http(packed("gzip", dense(30_000_000)), content_encoding="gzip"),
    "zstd": over_http(packed("zstd", dense(30_000_000)), content_encoding="zstd"),
    "dense gzip": over_http(packed("gzip", dense(3_000_000)), content_encoding="gzip"),
    "dense JSON": over_http(packed("gzip", dense_json(200_000)), JSON, content_encoding="gzip"),
    "gRPC": over_grpc(packed("gzip", dense(3_000_000))),
    "gRPC deflate": over_grpc(packed("deflate", dense(30_000_000))),
    "large": over_http(large(T, 8000)),
}
CHEAP: dict[str, Callable[[Server], str]] = {
    "many small parts": over_http(dense(8000)),
    "members": over_http(packed("gzip", b"") * 5000, content_encoding="gzip"),
    "announced": announced,
    "unfinished": unfinished,
    "garbage": over_http(b"\xff" * 300),
}


KINDS = COSTLY | CHEAP
ROUNDS = 10
"""Of the cheap ones for each round of the costly ones, which take turns of a second or so."""


class Attack:
    """So many requests of all kinds, by some clients."""

    def __init__(self, server: Server, count: int, seconds: float) -> None:
        self.ends: dict[str, Counter[str]] = {name: Counter() for name in KINDS}
        self.errors: list[BaseException] = []
        self._server = server
        self._left = itertools.count(1 - count)
        self._kinds = itertools.cycle([*COSTLY, *[*CHEAP] * ROUNDS])
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(16)]

    @property
    def sent(self) -> int:
        """How many were answered, or given up."""
        return sum(counts.total() for counts in self.ends.values())

    def run(self, meanwhile: Callable[[], None]) -> None:
        """Returns at the end of it."""
        for thread in self._threads:
            thread.start()
        while any(thread.is_alive() for thread in self._threads):
            meanwhile()
            time.sleep(0.2)
        for thread in self._threads:
            thread.join()

    def _next(self) -> str | None:
        with self._lock:
            over = next(self._left) > 0 or time.monotonic() > self._end
            return None if over else next(self._kinds)

    def _run(self) -> None:
        while (name := self._next()) is not None:
            try:
                end = KINDS[name](self._server)
            except (ConnectionError, TimeoutError):
                end = "gone"
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.errors.append(error)
                return
            with self._lock:
                self.ends[name][end] += 1


# --- honest ------------------------------------------------------------------------------------


class Honest:
    """Clients over HTTP and gRPC, one small request after the other, each of them timed."""

    def __init__(self, server: Server) -> None:
        self.times_s: list[float] = []
        self.others: Counter[str] = Counter()
        self._server = server
        self._ended = threading.Event()
        ways = [self._over_http, self._over_grpc] * 2
        self._threads = [threading.Thread(target=way) for way in ways]

    def __enter__(self) -> Honest:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    @property
    def p99_s(self) -> float:
        """The time within which 99 of 100 were answered."""
        return statistics.quantiles(self.times_s, n=100)[-1]

    def _over_http(self) -> None:
        heads = {"content-type": PROTOBUF, "authorization": f"Bearer {HONEST}"}
        with contextlib.closing(self._server.connection()) as connection:
            while not self._ended.wait(0.01):
                began = time.monotonic()
                connection.request("POST", L.http_path, logs("honest"), heads)
                response = connection.getresponse()
                response.read()
                self._count(began, str(response.status))

    def _over_grpc(self) -> None:
        with self._server.channel() as channel:
            method = channel.unary_unary(L.grpc_method)
            metadata = (("authorization", f"Bearer {HONEST}"),)
            while not self._ended.wait(0.01):
                began = time.monotonic()
                try:
                    method(logs("honest"), metadata=metadata, timeout=300)
                except grpc.RpcError as error:
                    self._count(began, str(error.code().name))
                else:
                    self._count(began, "200")

    def _count(self, began: float, end: str) -> None:
        if end == "200":
            self.times_s.append(time.monotonic() - began)
        else:
            self.others[end] += 1


def report(attack: Attack, quiet: Honest, honest: Honest, peak: int) -> None:
    """What was measured, for whoever runs it."""
    sys.stderr.write(
        f"{attack.sent} hostile: {attack.ends}\n"
        f"{len(honest.times_s)} honest: p99 {honest.p99_s:.4f} s, {quiet.p99_s:.4f} s when quiet\n"
        f"most memory of the worker: {peak // MIB} MiB\n"
    )


@pytest.mark.soak
def test_honest_clients_do_not_notice_hostile_ones(server: Server) -> None:
    """All are answered, 99 of 100 within twice the time of a quiet run; the memory is bounded."""
    with Honest(server) as quiet:
        time.sleep(QUIET_S)
    status = server.get("/api/v1/status", authorization=f"Bearer {OVERSEER}").json
    worker = status["workers"][0]["pid"]
    peak = 0

    def look() -> None:
        nonlocal peak
        peak = max(peak, resident_bytes(worker))

    attack = Attack(server, REQUESTS, SECONDS)
    with Honest(server) as honest:
        attack.run(look)
    report(attack, quiet, honest, peak)
    assert not attack.errors
    assert all(attack.ends.values()), "a kind was never sent"
    assert all(set(ends) <= ENDS | {"200"} for ends in attack.ends.values())
    assert not honest.others
    assert not quiet.others
    assert honest.p99_s <= 2 * max(quiet.p99_s, FLOOR_S)
    assert peak < MEMORY
