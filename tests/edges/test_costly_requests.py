"""Requests that are costly to look at keep nobody else waiting, and honest large ones are taken.

That others are served is counted, not timed: so many of their requests are answered before the
costly ones are.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from penstock.otel import Signal
from tests.edges.dense import dense, dense_json, large, packed
from tests.patience import until
from tests.server.running import JSON, PROTOBUF, Server, answer_of, export, serving
from tests.server.samples import logs
from tests.server.test_http import otlp_json

T, L = Signal.TRACES, Signal.LOGS
MILLIONS = 30_000_000
HONEST = 20
"""Requests of an honest client that are answered while one costly request is looked at."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One worker, with all the patience that a busy machine needs."""
    folder = tmp_path_factory.mktemp("costly") / "data"
    limits = {"timeout": "10m", "disk_free": "1MiB"}
    with serving(folder, "--workers=1", config={"limits": limits}) as started:
        yield started


def over_http(server: Server, sent: Signal, body: bytes, kind: str, encoding: str = "") -> str:
    """What a request is answered, and why."""
    answer = server.post(sent, body, kind, content_encoding=encoding)
    return f"{answer.status} {answer.body.decode('utf-8', 'replace')}"


def over_grpc(server: Server, sent: Signal, body: bytes) -> str:
    """The same."""
    try:
        server.export(sent, body)
    except grpc.RpcError as error:
        return f"{error.code().name} {error.details()}"
    return "OK"


def costly(parts: int) -> dict[str, Callable[[Server], str]]:
    """By every way in."""
    return {
        "protobuf": lambda s: over_http(s, T, dense(min(parts, 8_000_000)), PROTOBUF),
        "gzip": lambda s: over_http(s, T, packed("gzip", dense(parts)), PROTOBUF, "gzip"),
        "zstd": lambda s: over_http(s, T, packed("zstd", dense(parts)), PROTOBUF, "zstd"),
        "JSON": lambda s: over_http(s, L, dense_json(parts // 6), JSON),
        "JSON, gzip": lambda s: over_http(
            s, L, packed("gzip", dense_json(parts // 6)), JSON, "gzip"
        ),
        "gRPC": lambda s: over_grpc(s, T, dense(min(parts, 8_000_000))),
        "gRPC, gzip": lambda s: over_grpc(s, T, packed("gzip", dense(parts))),
        "gRPC, deflate": lambda s: over_grpc(s, T, packed("deflate", dense(parts))),
        "gRPC, zstd": lambda s: over_grpc(s, T, packed("zstd", dense(parts))),
    }


WAYS = list(costly(0))
REFUSED = {"400", "413", "INVALID_ARGUMENT"}


@pytest.mark.parametrize("way", WAYS)
def test_what_has_too_many_parts_is_refused_for_good(server: Server, way: str) -> None:
    """30 million of them, with one sentence that says what there is too much of."""
    status, _, why = costly(MILLIONS)[way](server).partition(" ")
    assert status in REFUSED
    assert "too many" in why or "more than" in why


class Honest:
    """A client that sends small requests, one after the other, and counts the answers."""

    def __init__(self, server: Server) -> None:
        self.answered = 0
        self.others: set[int] = set()
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Honest:
        self._thread.start()
        until(lambda: self.answered)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        heads = {"content-type": PROTOBUF, "x-penstock-namespace": "honest"}
        with contextlib.closing(self._server.connection()) as connection:
            while not self._ended.is_set():
                connection.request("POST", "/v1/logs", logs("honest"), heads)
                status = answer_of(connection.getresponse()).status
                self.answered += status == 200
                self.others |= {status} - {200}


@pytest.mark.parametrize("way", WAYS)
def test_others_are_served_while_a_costly_request_is_looked_at(server: Server, way: str) -> None:
    """As many as come: none of them waits for the end of it."""
    send = costly(4_000_000)[way]  # not so many that its size alone says enough
    with Honest(server) as honest, ThreadPoolExecutor(4) as threads:
        hostile = [threads.submit(send, server) for _ in range(4)]
        before = honest.answered
        done_at = [_count_at_end(each, honest) for each in hostile]
        for each in hostile:
            each.result()
        until(lambda: all(done_at))
    # The last of four that take their turns ends long after the honest client went on.
    assert max(counts[0] for counts in done_at) - before >= HONEST
    assert not honest.others


def _count_at_end(future: Future[Any], honest: Honest) -> list[int]:
    counts: list[int] = []
    future.add_done_callback(lambda _: counts.append(honest.answered))
    return counts


def test_large_requests_of_others_take_turns_with_costly_ones(server: Server) -> None:
    """An honest large request is answered before all the costly ones that came first."""
    hostile = partial(over_http, server, L, dense_json(600_000), JSON)
    with ThreadPoolExecutor(12) as threads:
        first = [threads.submit(hostile) for _ in range(12)]
        until(lambda: any(each.running() for each in first))
        answer = from_elsewhere(server, large(T, 8000))
        waiting = sum(not each.done() for each in first)
        for each in first:
            assert each.result().startswith("200 ")
    assert answer == 200
    assert waiting, "it came after all of them"


def from_elsewhere(server: Server, body: bytes) -> int:
    """A client at another address; what it is answered."""
    port = server.ready["http"]
    connection = http.client.HTTPConnection("127.0.0.1", port, source_address=("127.0.0.2", 0))
    with contextlib.closing(connection):
        connection.request("POST", T.http_path, body, {"content-type": PROTOBUF})
        return answer_of(connection.getresponse()).status


@pytest.mark.parametrize("sent", Signal)
@pytest.mark.parametrize("encoding", ["", "gzip", "zstd"])
def test_honest_large_requests_are_taken(server: Server, sent: Signal, encoding: str) -> None:
    """Over both ports, as protobuf and JSON: up to the 65535 records that a bundle can number."""
    data = large(sent, 65_000 if not encoding else 20_000)
    body = packed(encoding, data) if encoding else data
    assert over_http(server, sent, body, PROTOBUF, encoding).startswith("200 ")
    assert over_grpc(server, sent, body) == "OK"
    if encoding == "gzip":
        document = otlp_json(MessageToDict(sent.request_class.FromString(large(sent, 8000))))
        text = packed(encoding, str_of(document))
        assert over_http(server, sent, text, JSON, encoding).startswith("200 ")


def str_of(document: Any) -> bytes:
    """As JSON."""
    return json.dumps(document).encode()


def test_honest_metrics_that_are_all_zero_are_taken(server: Server) -> None:
    """They shrink to a five-thousandth: a ratio alone says nothing of a request."""
    request = Signal.METRICS.request_class()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="jvm.memory.used")  # type: ignore[attr-defined]
    for _ in range(60_000):
        metric.gauge.data_points.add(as_int=0).attributes.add(key="pool").value.string_value = "E"
    body = packed("zstd", request.SerializeToString())
    assert over_http(server, Signal.METRICS, body, PROTOBUF, "zstd").startswith("200 ")


def test_requests_on_one_channel_are_answered_beside_a_costly_one(server: Server) -> None:
    """Over gRPC, on the same connection."""
    with server.channel(max_send_message_length=-1) as channel, ThreadPoolExecutor(1) as thread:
        costly = thread.submit(partial(_try, channel, packed("gzip", dense_json(10**5))))
        for number in range(HONEST):
            export(channel, L, logs(f"beside {number}"))
        assert costly.result() == "INVALID_ARGUMENT"  # JSON is no protobuf


def _try(channel: grpc.Channel, body: bytes) -> str:
    try:
        export(channel, L, body)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"
