"""Hostile clients as a program of their own: HTTP port, gRPC port, how many requests, seconds.

Apart from the honest clients, whose interpreter they would keep busy, and at the lowest priority:
on the one machine of a test they stand for others' machines, which have processors of their own.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import grpc

from penstock.otel import Signal
from tests.edges.dense import dense, dense_json, large, packed
from tests.server import http2
from tests.server.running import JSON, PROTOBUF, Reached

T, L = Signal.TRACES, Signal.LOGS
MIB = 2**20
TOKEN = "hostile-token"  # noqa: S105 - of a test


# --- hostile -----------------------------------------------------------------------------------


def over_http(body: bytes, kind: str = PROTOBUF, **headers: str) -> Callable[[Reached], str]:
    """A request that is refused, or costs much."""
    sent = L if kind == JSON else T

    def send(server: Reached) -> str:
        heads = {"authorization": f"Bearer {TOKEN}", **headers}
        return str(server.post(sent, body, kind, **heads).status)

    return send


def over_grpc(body: bytes) -> Callable[[Reached], str]:
    """The same."""

    def send(server: Reached) -> str:
        try:
            server.export(T, body, authorization=f"Bearer {TOKEN}")
        except grpc.RpcError as error:
            return str(error.code().name)
        return "200"

    return send


def announced(server: Reached) -> str:
    """A gigabyte is announced, and a part of it sent."""
    head = f"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: {PROTOBUF}\r\n"
    head += f"authorization: Bearer {TOKEN}\r\ncontent-length: {1024 * MIB}\r\n\r\n"
    with server.socket() as connection:
        connection.sendall(head.encode() + bytes(1000))
        return connection.recv(100).split(b" ", 2)[1].decode()


def unfinished(server: Reached) -> str:
    """Calls whose messages do not end."""
    connection = http2.Connection(server.socket("grpc"))
    bearer = {"authorization": f"Bearer {TOKEN}"}
    for stream in range(1, 20, 2):
        connection.begin_call(stream, T.grpc_method, **bearer)
        connection.send(stream, b"\0" + (15 * MIB).to_bytes(4, "big"))
        connection.send(stream, bytes(16_384))
    connection.close()
    return "gone"


Kinds = dict[str, Callable[[Reached], str]]


def costly() -> Kinds:
    """Those that take a turn of a second or so; made when they are needed: it takes seconds."""
    return {
        "gzip": over_http(packed("gzip", dense(30_000_000)), content_encoding="gzip"),
        "zstd": over_http(packed("zstd", dense(30_000_000)), content_encoding="zstd"),
        "dense gzip": over_http(packed("gzip", dense(3_000_000)), content_encoding="gzip"),
        "dense JSON": over_http(packed("gzip", dense_json(200_000)), JSON, content_encoding="gzip"),
        "gRPC": over_grpc(packed("gzip", dense(3_000_000))),
        "gRPC deflate": over_grpc(packed("deflate", dense(30_000_000))),
        "large": over_http(large(T, 8000)),
    }


def cheap() -> Kinds:
    """Those that are answered at once."""
    return {
        "many small parts": over_http(dense(8000)),
        "members": over_http(packed("gzip", b"") * 5000, content_encoding="gzip"),
        "announced": announced,
        "unfinished": unfinished,
        "garbage": over_http(b"\xff" * 300),
    }


ROUNDS = 40
"""Of the cheap ones for each round of the costly ones."""


class Attack:
    """So many requests of all kinds, by some clients."""

    def __init__(self, server: Reached, count: int, seconds: float) -> None:
        few, many = costly(), cheap()
        self.ends: dict[str, Counter[str]] = {name: Counter() for name in few | many}
        self.errors: list[str] = []
        self._server = server
        self._left = itertools.count(1 - count)
        self._send = few | many
        self._kinds = itertools.cycle([*few, *[*many] * ROUNDS])
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(16)]

    def run(self) -> None:
        """Returns at the end of it."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def _next(self) -> str | None:
        with self._lock:
            over = next(self._left) > 0 or time.monotonic() > self._end
            return None if over else next(self._kinds)

    def _run(self) -> None:
        while (name := self._next()) is not None:
            try:
                end = self._send[name](self._server)
            except (ConnectionError, TimeoutError):
                end = "gone"
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.errors.append(repr(error))
                return
            with self._lock:
                self.ends[name][end] += 1


def main() -> None:
    """Writes how the requests ended, by kind."""
    http_port, grpc_port, count, seconds = sys.argv[1:]
    os.nice(19)
    attack = Attack(
        Reached({"http": int(http_port), "grpc": int(grpc_port)}), int(count), float(seconds)
    )
    attack.run()
    json.dump({"ends": attack.ends, "errors": attack.errors}, sys.stdout)


if __name__ == "__main__":
    main()
