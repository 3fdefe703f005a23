"""A receiver without a disk acknowledges what the queue has, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from penstock.model.errors import ObjectsUnavailable
from penstock.otel import Signal
from penstock.queue import AsyncProducer, Inspector, ProducerSettings
from penstock.queue.otlp import requests_of
from penstock.server.receiving.buffer import Buffer
from penstock.server.refusals import Cause, Refusal
from penstock.storage.objects import ObjectStore, open_objects
from tests.pipeline.helpers import spans
from tests.server.taking import take
from tests.servers.loops import in_loop


@contextlib.asynccontextmanager
async def buffering(objects: ObjectStore, **settings: float) -> AsyncIterator[Buffer]:
    """A way into the queue."""
    producer = await AsyncProducer.open(objects, ProducerSettings(**settings))  # type: ignore[arg-type] # of one's own
    buffer = Buffer(producer)
    try:
        yield buffer
    finally:
        await buffer.close()


async def queued(objects: ObjectStore) -> list[tuple[str, bytes]]:
    """Topic and request of everything that waits."""
    inspector = Inspector(objects)
    batches = [await inspector.batch(entry) async for entry in inspector.entries()]
    return [(str(each.origin.topic), each.request) for one in batches for each in requests_of(one)]


@in_loop
async def test_an_acknowledged_request_is_in_the_queue() -> None:
    """With the topic that its namespace and signal make."""
    objects = open_objects("memory://")
    async with buffering(objects) as buffer:
        await take(buffer, Signal.TRACES, "acme", spans(1))
        assert await queued(objects) == [("/acme/traces", spans(1))]


@in_loop
async def test_requests_that_come_together_share_a_call() -> None:
    """The manifest has one item for all of a topic."""
    objects = open_objects("memory://")
    async with buffering(objects) as buffer:
        await asyncio.gather(
            *(
                take(buffer, Signal.TRACES, f"n{number % 2}", spans(number))
                for number in range(1, 51)
            )
        )
        [entry] = [entry async for entry in Inspector(objects).entries()]
    assert len(entry.metadata) == 2
    assert len(await queued(objects)) == 50


@in_loop
async def test_what_is_no_request_is_refused() -> None:
    """And an empty one is answered without a word to the queue."""
    objects = open_objects("memory://")
    async with buffering(objects) as buffer:
        with pytest.raises(Refusal) as refused:
            await take(buffer, Signal.TRACES, "default", b"\xff\xff")
        assert refused.value.cause is Cause.INVALID
        with pytest.raises(Refusal) as refused:
            await take(buffer, Signal.TRACES, "not a/namespace\n", spans(1))
        assert refused.value.cause is Cause.INVALID
        await take(buffer, Signal.TRACES, "default", b"")
    assert await queued(objects) == []


@in_loop
async def test_a_full_buffer_puts_clients_off() -> None:
    """They are told when to come again; what was taken is stored."""
    objects = open_objects("memory://")
    async with buffering(objects, max_buffered_bytes=2000, flush_interval_s=3600.0) as buffer:
        first = asyncio.create_task(take(buffer, Signal.TRACES, "a", spans(*range(1, 20))))
        while not buffer._producer.buffered_bytes:
            await asyncio.sleep(0.001)
        with pytest.raises(Refusal) as refused:
            await take(buffer, Signal.TRACES, "b", spans(*range(1, 20)))
        assert (refused.value.cause, bool(refused.value.retry_after_s)) == (Cause.BUSY, True)
        assert buffer.failures()
    await first
    assert len(await queued(objects)) == 1


@in_loop
async def test_store_that_does_not_answer_is_the_servers_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is acknowledged; the client is to send again."""
    objects = open_objects("memory://")
    async with buffering(objects, retry_s=0.01) as buffer:

        async def silent(*_: object) -> None:
            raise ObjectsUnavailable("silence")

        with monkeypatch.context() as patched:
            patched.setattr(type(objects), "put", silent)
            with pytest.raises(Refusal) as refused:
                await take(buffer, Signal.TRACES, "a", spans(1))
        assert refused.value.retry_after_s is not None
        assert "the queue:" in buffer.failures()[0]
        await take(buffer, Signal.TRACES, "a", spans(2))
        assert buffer.failures() == []
    assert await queued(objects) == [("/a/traces", spans(2))]


@in_loop
async def test_a_client_that_goes_takes_nothing_back() -> None:
    """Others of the same call are answered."""
    objects = open_objects("memory://")
    async with buffering(objects) as buffer:
        gone = asyncio.create_task(take(buffer, Signal.TRACES, "a", spans(1)))
        stays = asyncio.create_task(take(buffer, Signal.TRACES, "a", spans(2)))
        await asyncio.sleep(0.001)
        gone.cancel()
        await stays
    assert len(await queued(objects)) == 2
