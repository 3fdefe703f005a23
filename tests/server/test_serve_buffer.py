"""`penstock serve --buffer`: receivers that keep nothing, in front of one queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.otel import Signal
from penstock.queue import Inspector
from penstock.queue.otlp import requests_of
from penstock.storage.objects import open_objects
from tests.server.running import Server, serving, until
from tests.server.samples import logs, traces
from tests.server.traffic import Traffic
from tests.servers.fixtures import s3
from tests.servers.seaweed import S3Server

__all__ = ["s3"]
T, L = Signal.TRACES, Signal.LOGS


def queued(url: str, **options: str) -> list[tuple[str, bytes]]:
    """Topic and request of everything that waits."""
    return asyncio.run(_queued(url, options))


async def _queued(url: str, options: dict[str, str]) -> list[tuple[str, bytes]]:
    objects = open_objects(url, options)
    inspector = Inspector(objects)
    batches = [await inspector.batch(entry) async for entry in inspector.entries()]
    await objects.close()
    return [(str(each.origin.topic), each.request) for one in batches for each in requests_of(one)]


def names_of(requests: list[tuple[str, bytes]]) -> Counter[str]:
    """The names of the spans in them."""
    found: Counter[str] = Counter()
    for _, data in requests:
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            found.update(span.name for scope in resource.scope_spans for span in scope.spans)
    return found


def test_what_is_acknowledged_is_in_the_queue(tmp_path: Path) -> None:
    """By every port; nothing is on the disk, and nobody can ask what is not here."""
    url = (tmp_path / "objects").as_uri()
    with serving(tmp_path / "data", "--buffer", url) as server:
        assert (server.ready["data_dir"], server.ready["flight"]) == (None, None)
        assert server.ready["buffer"] == url
        assert server.post(T, traces("a")).status == 200
        server.export(L, logs("b"), **{"x-penstock-namespace": "acme"})
        assert [topic for topic, _ in queued(url)] == ["/default/traces", "/acme/logs"]
        assert server.get("/healthz").json == {"healthy": True, "problems": []}
        assert server.ask("POST", "/api/v1/query", b"{}", port="web").status == 404
        assert server.ask("POST", "/api/v1/flush", port="web").status == 200
        assert server.stop() == 0
    assert not (tmp_path / "data").exists()


def test_kill_loses_nothing_that_was_acknowledged(
    s3: S3Server,
    tmp_path: Path,
) -> None:
    """Two receivers on one queue, on a real S3 server; one is killed, and started again."""
    url, options = s3.place(), s3.options
    config: dict[str, Any] = {"buffer": {"url": url, "objects": options}}
    with serving(tmp_path / "other", config=config) as other:
        killed = Server.start(tmp_path / "killed", config=config)
        with Traffic(killed, "first") as first, Traffic(other, "other") as second:
            first.wait_for(40)
            killed.kill()
            second.wait_for(60)
        with serving(tmp_path / "killed", config=config) as again, Traffic(again, "again") as third:
            third.wait_for(20)
        assert other.stop() == 0
    found = names_of(queued(url, **options))
    outcomes = [each.outcome for each in (first, second, third)]
    answered = set().union(*(each.answered for each in outcomes))
    assert len(answered) >= 120
    assert {name: found[name] for name in answered} == dict.fromkeys(answered, 1)
    assert not found.keys() & set().union(*(each.refused for each in outcomes))
    assert found.keys() <= answered | set().union(*(each.unknown for each in outcomes))


def test_clients_are_put_off_while_the_store_is_away(tmp_path: Path) -> None:
    """A receiver starts without it, says so, and takes requests once it answers."""
    server = S3Server(tmp_path / "weed")
    config = {"buffer": {"url": server.place(), "objects": server.options}}
    with serving(tmp_path / "data", config=config) as receiver:
        refused = receiver.post(T, traces("early"))
        assert (refused.status, "retry-after" in refused.headers) == (503, True)
        assert receiver.get("/healthz").status == 503
        try:
            server.start()
            until(lambda: receiver.post(T, traces("late")).status == 200)
            assert receiver.get("/healthz").status == 200
        finally:
            server.stop()


@pytest.mark.parametrize("url", ["ftp://somewhere", "s3://", "file://relative/path"])
def test_url_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    """In one sentence, before anything is opened."""
    server = Server.begin(tmp_path / "data", "--buffer", url)
    assert server.wait() == 1
    assert len(server.errors.strip().splitlines()) == 1
    assert url in server.errors
