"""Whatever an object store answers, in whatever position: nothing stops, nothing is lost.

A scripted server stands in front of a real one. What the answers mean is in docs/object-storage.md.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Consumer, Producer
from penstock.model.errors import PenstockError
from penstock.otel import Signal
from penstock.queue import (
    ConsumerSettings,
    GarbageCollector,
    GarbageSettings,
    Inspector,
    ProducerSettings,
)
from penstock.queue.blocking import run_blocking
from penstock.storage.objects import open_objects
from tests.server.running import PATIENCE_S, Server, serving, until
from tests.server.samples import traces
from tests.server.test_serve_buffer import names_of, queued
from tests.servers.fixtures import s3
from tests.servers.proxy import Fault, Proxy
from tests.servers.seaweed import S3Server  # noqa: TC001 - pytest reads the annotations

__all__ = ["s3"]
T = Signal.TRACES
FAULTS = [
    pytest.param(Fault.CONFLICT, 6, id="conflict"),
    pytest.param(Fault.LOST, 5, id="lost"),
    *(pytest.param(fault, 1, id=fault.name, marks=pytest.mark.soak) for fault in Fault),
]
"""Each fault in every position; two of them in every few, so that `make test` stays short."""
_RETRYABLE = (429, 503)


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[Proxy]:
    """In front of the S3 server."""
    with Proxy(s3.endpoint).running() as running:
        yield running


def options_of(s3: S3Server, proxy: Proxy) -> dict[str, str]:
    """Everything goes through the proxy."""
    return {**s3.options, "aws_endpoint_url": proxy.endpoint}


def deliver(server: Server, name: str, **headers: str) -> None:
    """As an exporter does: what is retryable is sent again, anything else would be dropped."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := server.post(T, traces(name), **headers)).status != 200:
        assert answer.status in _RETRYABLE, answer
        assert "retry-after" in answer.headers
        assert time.monotonic() < deadline, answer


# --- the queue ---------------------------------------------------------------------------------


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("fault", "step"), FAULTS)
def test_receiver_goes_on_whatever_is_answered(
    s3: S3Server, proxy: Proxy, tmp_path: Path, fault: Fault, step: int
) -> None:
    """From the queue's making to its appends, each request in turn; health is green at the end."""
    url = s3.place()
    config: dict[str, Any] = {"buffer": {"url": url, "objects": options_of(s3, proxy)}}
    config["workers"] = 1
    sent = []
    for position in range(1, 4, step):  # while the queue is made, and opened
        proxy.after(position, fault)
        with serving(tmp_path / "data", config=config) as server:
            sent.append(f"opening {position}")
            deliver(server, sent[-1])
            server.kill()
    with serving(tmp_path / "data", config=config) as server:
        for position in range(4):
            proxy.after(position, fault)
            sent += [f"{position} {number}" for number in range(2)]
            for name in sent[-2:]:
                deliver(server, name)
        until(lambda: server.get("/healthz").status == 200)
        assert server.stop() == 0
    found = names_of(queued(url, **s3.options))
    assert set(found) == set(sent)  # twice where nobody could know; never less than once


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("fault", "step"), FAULTS)
def test_queue_is_consumed_whatever_is_answered(
    s3: S3Server, proxy: Proxy, fault: Fault, step: int
) -> None:
    """Producing, chunks, claiming, dequeuing and collecting: each request in turn."""
    options = options_of(s3, proxy)
    for position in itertools.count(0, step):
        url, produced = s3.place(), [b"%d" % number for number in range(9)]
        found: list[bytes] = []
        proxy.after(position, fault)
        _again(_produce, url, options, produced)
        _again(_consume, url, options, found)
        _again(_collect, url, options)
        assert sorted(set(found)) == sorted(produced)
        assert not _waiting(url, s3.options)
        if len(proxy.asked) <= position:
            assert position > 20
            return


def _again(work: Callable[..., None], *arguments: Any) -> None:
    """Whoever is told that it could not be done now calls again; once is enough."""
    with contextlib.suppress(PenstockError):
        work(*arguments)
        return
    work(*arguments)


def _produce(url: str, options: dict[str, str], entries: list[bytes]) -> None:
    """Batches of three, and a chunk for every two of them."""
    settings = ProducerSettings(flush_interval_s=0, tail_bytes=150)
    with Producer.open(url, settings, options=options) as producer:
        waiting = _waiting(url, options)
        for start in range(0, len(entries), 3):
            if entries[start] not in waiting:
                producer.produce(entries[start : start + 3]).watcher.wait(PATIENCE_S)


def _consume(url: str, options: dict[str, str], found: list[bytes]) -> None:
    settings = ConsumerSettings(acks_per_dequeue=2, gc_interval_s=None)
    with Consumer.open(url, settings, options=options) as consumer:
        consumer.initialize()
        while (batch := consumer.next_batch()) is not None:
            found += batch.entries
            consumer.ack(batch.sequence)
        consumer.flush()


def _collect(url: str, options: dict[str, str]) -> None:
    settings = GarbageSettings(gc_grace_period_s=0)

    async def work() -> None:
        objects = open_objects(url, options)
        await GarbageCollector(objects, settings, randomness=random.Random(1)).collect()
        await objects.close()

    run_blocking(work())


def _waiting(url: str, options: dict[str, str]) -> list[bytes]:
    """The entries that are in the queue."""

    async def work() -> list[bytes]:
        objects = open_objects(url, options)
        inspector = Inspector(objects)
        batches = [await inspector.batch(entry) async for entry in inspector.entries()]
        await objects.close()
        return [entry for batch in batches for entry in batch.entries]

    return run_blocking(work())


def test_receiver_that_stopped_is_opened_again(tmp_path: Path) -> None:
    """Its manifest is gone, and comes back: clients are put off meanwhile, and health says why."""
    objects, aside = tmp_path / "objects", tmp_path / "aside"
    with serving(tmp_path / "data", "--buffer", objects.as_uri(), "--workers=1") as server:
        deliver(server, "a")
        (objects / "ingest" / "manifest").rename(aside)
        answer = server.post(T, traces("b"))
        assert (answer.status, "retry-after" in answer.headers) == (503, True)
        until(lambda: server.get("/healthz").status == 503)
        assert "manifest" in str(server.get("/healthz").json["problems"])
        assert server.post(T, traces("b")).status == 503
        aside.rename(objects / "ingest" / "manifest")
        deliver(server, "b")
        until(lambda: server.get("/healthz").status == 200)
        assert server.stop() == 0
    assert set(names_of(queued(objects.as_uri()))) == {"a", "b"}


# --- the archive -------------------------------------------------------------------------------


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("fault", "step"), FAULTS)
def test_topic_is_archived_whatever_is_answered(
    s3: S3Server, proxy: Proxy, tmp_path: Path, fault: Fault, step: int
) -> None:
    """From the claim of a new topic to its upload and cleaning, each request in turn."""
    archive = {"url": s3.place(), "objects": options_of(s3, proxy), "upload_interval": "50ms"}
    with serving(tmp_path / "data", config={"archive": archive, "workers": 1}) as server:
        for position in range(0, 10, min(step, 3)):
            name = f"team-{position}"
            proxy.after(position, fault)
            deliver(server, "a", x_penstock_namespace=name)
            deliver(server, "b", x_penstock_namespace=name)
            until(functools.partial(_is_archived, server, name))
        until(lambda: server.get("/healthz").status == 200)
        assert server.stop() == 0


def _is_archived(server: Server, namespace: str) -> bool:
    """Whether both messages of the topic are in the archive."""
    topic = f"/{namespace}/traces/0"
    return server.metric("penstock_archive_messages_total", topic=topic) == 2
