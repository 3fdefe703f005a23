"""At most one consumer uses a queue; the one before gets Fenced, whatever it does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock.model.errors import Fenced, InvalidArgument, ObjectsUnavailable, QueueClosed
from penstock.queue.format import decode_manifest
from tests.queue.helpers import MANIFEST, Queue, held, quiet
from tests.servers.loops import in_loop
from tests.simulation.objects import Fault, FaultyObjects, Script

if TYPE_CHECKING:
    from tests.queue.plain_objects import PlainObjects

versions = pytest.mark.parametrize("version", [1, 2])


async def filled(plain: PlainObjects, version: int = 2) -> Queue:
    """A queue with three batches."""
    queue = Queue(plain, version=version)
    producer = await queue.producer()
    await queue.produced(producer, b"a", b"b", b"c")
    await producer.close()
    return queue


@versions
@in_loop
async def test_older_consumer_is_fenced_from_every_operation(
    plain: PlainObjects, version: int
) -> None:
    """Also from what it has in memory already, and again and again."""
    queue = await filled(plain, version)
    old = await queue.consumer()
    assert await old.next_batch() is not None
    await quiet()
    new = await queue.consumer()
    works = (
        old.next_batch,
        lambda: old.ack(0),
        lambda: old.ack(7),
        lambda: old.ack_through(1),
        old.flush,
        lambda: old.skip(1),
        lambda: old.peek(1),
    )
    for _ in range(2):
        for work in works:
            with pytest.raises(Fenced):
                await work()
    assert (await new.next_batch()).entries == [b"a"]
    assert decode_manifest(plain.objects[MANIFEST]).first_sequence == 0
    await old.close()
    await new.close()


@in_loop
async def test_fenced_consumer_may_claim_the_queue_again(plain: PlainObjects) -> None:
    """Then the other one is fenced."""
    queue = await filled(plain)
    one, two = await queue.consumer(), await queue.consumer()
    with pytest.raises(Fenced):
        await one.next_batch()
    await one.initialize()
    assert (await one.next_batch()).entries == [b"a"]
    with pytest.raises(Fenced):
        await two.next_batch()


@in_loop
async def test_consumer_fenced_while_it_fetches_hands_nothing_out(plain: PlainObjects) -> None:
    """The batch arrives after the successor has claimed the queue."""
    queue = await filled(plain)
    old = await queue.consumer(read_ahead_batches=0)
    original = plain.get
    slow_get, gate = held(original)

    async def get(key: str, **named: Any) -> Any:
        work = slow_get if key.endswith(".batch") else original
        return await work(key, **named)

    plain.get = get
    waiting = asyncio.ensure_future(old.next_batch())
    await quiet()
    await queue.consumer()
    gate.set()
    with pytest.raises(Fenced):
        await waiting


@in_loop
async def test_batch_that_the_successor_had_removed_is_not_called_missing(
    plain: PlainObjects,
) -> None:
    """The consumer is fenced; nothing is damaged."""
    queue = await filled(plain)
    old = await queue.consumer(read_ahead_batches=0)
    original = plain.get
    slow_get, gate = held(original)

    async def get(key: str, **named: Any) -> Any:
        work = slow_get if key.endswith(".batch") else original
        return await work(key, **named)

    plain.get = get
    waiting = asyncio.ensure_future(old.next_batch())
    await quiet()
    new = await queue.consumer(2)
    await new.flush()
    await queue.time.passes(1.0)
    assert (await queue.collector(grace_s=0.0).collect()).batches == 3
    gate.set()
    with pytest.raises(Fenced):
        await waiting


@in_loop
async def test_dequeue_that_comes_after_the_fencing_changes_nothing(plain: PlainObjects) -> None:
    """The swap was prepared before, and is refused by the store."""
    queue = await filled(plain)
    old = await queue.consumer()
    await old.next_batch()
    await old.ack(0)
    original = plain.replace
    plain.replace, gate = held(original)
    flushing = asyncio.ensure_future(old.flush())
    await quiet()
    plain.replace = original
    new = await queue.consumer()
    gate.set()
    with pytest.raises(Fenced):
        await queue.time.until(flushing)
    manifest = decode_manifest(plain.objects[MANIFEST])
    assert (manifest.first_sequence, manifest.epoch) == (0, 2)
    assert (await new.next_batch()).sequence == 0


@in_loop
async def test_of_consumers_that_start_together_one_is_left(plain: PlainObjects) -> None:
    """Each claims in its turn; the last one has the queue."""
    queue = await filled(plain)
    consumers = [await queue.consumer(initialize=False) for _ in range(5)]
    await queue.time.until(asyncio.gather(*(each.initialize() for each in consumers)))
    outcomes = await asyncio.gather(
        *(each.next_batch() for each in consumers), return_exceptions=True
    )
    assert [type(each) for each in outcomes].count(Fenced) == 4
    assert decode_manifest(plain.objects[MANIFEST]).epoch == 5


@in_loop
async def test_claim_whose_answer_is_lost_is_made_again(plain: PlainObjects) -> None:
    """The first claim may be there: the second fences it as anybody else's."""
    queue = await filled(plain)
    script = Script()
    consumer = await queue.consumer(objects=FaultyObjects(plain, script), initialize=False)
    script.faults.extend([None, Fault.FAIL_AFTER])
    with pytest.raises(ObjectsUnavailable):
        await consumer.initialize()
    with pytest.raises(InvalidArgument):
        await consumer.next_batch()
    await consumer.initialize()
    assert (await consumer.next_batch()).entries == [b"a"]
    assert decode_manifest(plain.objects[MANIFEST]).epoch == 2


@in_loop
async def test_appends_do_not_fence(plain: PlainObjects) -> None:
    """Producers and the garbage collector change the manifest, but not the epoch."""
    queue = await filled(plain)
    consumer, producer = await queue.consumer(), await queue.producer()
    await queue.produced(producer, b"d")
    await queue.collector(grace_s=0.0).collect()
    assert (await consumer.next_batch()).entries == [b"a"]
    await producer.close()


@in_loop
async def test_call_that_waits_hears_of_the_fencing_that_another_found(plain: PlainObjects) -> None:
    """Two tasks share a consumer: one waits for a batch while the other acknowledges."""
    queue = await filled(plain)
    old = await queue.consumer(read_ahead_batches=0)
    await old.next_batch()
    original = plain.get
    slow_get, gate = held(original)

    async def get(key: str, **named: Any) -> Any:
        work = slow_get if key.endswith(".batch") else original
        return await work(key, **named)

    plain.get = get
    waiting = asyncio.ensure_future(old.next_batch())
    await quiet()
    await queue.consumer()
    with pytest.raises(Fenced):
        await old.ack(0)
    gate.set()
    with pytest.raises(Fenced):
        await waiting


@in_loop
async def test_call_that_waits_hears_of_the_closing(plain: PlainObjects) -> None:
    """It is not cancelled: nobody cancelled it."""
    queue = await filled(plain)
    consumer = await queue.consumer()
    original = plain.get
    slow_get, gate = held(original)

    async def get(key: str, **named: Any) -> Any:
        work = slow_get if key.endswith(".batch") else original
        return await work(key, **named)

    plain.get = get
    waiting = asyncio.ensure_future(consumer.next_batch())
    await quiet()
    await consumer.close()
    with pytest.raises(QueueClosed):
        await waiting
    assert not gate.is_set()


@in_loop
async def test_fenced_consumer_closes_without_complaint(plain: PlainObjects) -> None:
    """Its successor dequeues; garbage is its business, too."""
    queue = await filled(plain)
    old = await queue.consumer(gc_interval_s=5.0, gc_grace_period_s=0.0)
    await old.next_batch()
    await old.ack(0)
    new = await queue.consumer(0)
    await new.flush()
    with pytest.raises(Fenced):
        await old.next_batch()
    await queue.time.passes(60.0)
    assert len([key for key in plain.objects if key.endswith(".batch")]) == 3
    await old.close()
    third = await queue.consumer()
    await new.close()
    assert (await third.next_batch()).entries == [b"b"]
