"""The garbage collector deletes what nobody needs, and nothing that anybody may need."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.metrics import names
from penstock.queue.keys import chunk_of
from penstock.queue.ulid import ulid_text
from tests.queue.helpers import (
    MANIFEST,
    Queue,
    Time,
    batch_keys,
    entries_of,
    everything,
    held,
    quiet,
)
from tests.servers.loops import in_loop
from tests.simulation.objects import Fault, FaultyObjects, Script

if TYPE_CHECKING:
    from tests.queue.plain_objects import PlainObjects

PATIENT_S = 1e6
versions = pytest.mark.parametrize("version", [1, 2])


def orphan(plain: PlainObjects, time: Time) -> str:
    """A batch that its producer never enqueued."""
    name = (time.wall_ns() // 1_000_000).to_bytes(6, "big") + bytes(10)
    key = f"ingest/{ulid_text(name)}.batch"
    plain.write(key, b"")
    return key


async def consumed(queue: Queue, count: int) -> None:
    """So many batches leave the manifest."""
    consumer = await queue.consumer()
    for _ in range(count):
        batch = await consumer.next_batch()
        assert batch is not None
        await consumer.ack(batch.sequence)
    await consumer.close()


# --- the document's rules ----------------------------------------------------------------------


@versions
@in_loop
async def test_dequeued_batches_go_after_the_grace_period(
    plain: PlainObjects, version: int
) -> None:
    """Neither before, nor what is still in the manifest."""
    queue = Queue(plain, version=version)
    producer = await queue.producer()
    await queue.produced(producer, b"a", b"b")
    await queue.time.passes(0.5)
    await queue.produced(producer, b"c")
    await consumed(queue, 2)
    keys, collector = batch_keys(plain), queue.collector(grace_s=600.0)
    await queue.time.passes(599.0)
    assert (await collector.collect()).batches == 0
    await queue.time.passes(2.0)
    found = await collector.collect()
    assert (found.batches, found.kept, found.failed) == (2, 1, 0)
    assert batch_keys(plain) == keys[2:]
    assert queue.metrics.for_queue(MANIFEST).counts[names.QUEUE_COLLECTED] == 2
    await producer.close()


@versions
@in_loop
async def test_orphan_behind_the_oldest_entry_is_left_alone(
    plain: PlainObjects, version: int
) -> None:
    """However old it is: it may be enqueued yet."""
    queue = Queue(plain, version=version)
    producer = await queue.producer()
    before = orphan(plain, queue.time)
    await queue.time.passes(1.0)
    await queue.produced(producer, b"a")
    await queue.time.passes(1.0)
    behind = orphan(plain, queue.time)
    await queue.time.passes(10_000.0)
    await queue.collector().collect()
    assert before not in plain.objects
    assert behind in plain.objects
    await consumed(queue, 1)
    await queue.collector().collect()
    assert batch_keys(plain) == []
    await producer.close()


@in_loop
async def test_other_objects_are_left_alone(plain: PlainObjects) -> None:
    """Whatever lies below the prefix that is not a batch of this queue."""
    queue = Queue(plain)
    await (await queue.producer()).close()
    name = ulid_text(bytes(16))
    others = [
        "ingest/notes.txt",
        "ingest/x.batch",
        f"ingest/deeper/{name}.batch",
        f"other/{name}.batch",
        f"ingest/{name}.batch.tmp",
        f"ingest/{name.lower().replace('0', 'a')}.batch",
    ]
    for key in others:
        plain.write(key, b"kept")
    await queue.time.passes(10_000.0)
    await queue.collector().collect()
    assert set(others) <= set(plain.objects)


@in_loop
async def test_dry_run_changes_nothing(plain: PlainObjects) -> None:
    """It says what would go."""
    queue = Queue(plain)
    producer = await queue.producer()
    orphan(plain, queue.time)
    await queue.time.passes(10_000.0)
    before = dict(plain.objects)
    assert (await queue.collector().collect(dry_run=True)).batches == 1
    assert plain.objects == before
    await producer.close()


@in_loop
async def test_chunks_that_were_consumed_go(plain: PlainObjects) -> None:
    """At once, and no others."""
    queue = Queue(plain)
    producer = await queue.producer(tail_bytes=100)
    await queue.produced(producer, *[b"%d" % number for number in range(9)])
    await consumed(queue, 5)
    await queue.collector().collect()
    chunks = [chunk_of(MANIFEST, key) for key in plain.objects]
    kept = [chunk for chunk in chunks if chunk is not None]
    assert kept == list(range(min(kept), max(kept) + 1))
    assert min(kept) > 0
    assert entries_of(await everything(await queue.consumer())) == [b"5", b"6", b"7", b"8"]
    await producer.close()


@in_loop
async def test_failed_delete_is_tried_again_by_the_next_look(plain: PlainObjects) -> None:
    """It does not end the look, and is reported."""
    queue = Queue(plain)
    producer = await queue.producer()
    orphan(plain, queue.time)
    await queue.time.passes(10_000.0)

    class Plan(Script):
        def __call__(self, operation: str, key: str) -> Fault | None:
            fault = super().__call__(operation, key)
            return fault if operation == "delete" else None

    plan = Plan([Fault.FAIL_BEFORE] * 100)
    queue.objects = FaultyObjects(plain, plan)
    assert (await queue.collector().collect()).failed == 1
    plan.faults.clear()
    assert (await queue.collector().collect()).failed == 0
    assert batch_keys(plain) == []
    await producer.close()


# --- safety beyond clocks ----------------------------------------------------------------------


@pytest.mark.parametrize("skew_s", [0.0, 1e6])
@in_loop
async def test_batch_enqueued_after_the_grace_period_is_stored_again(
    plain: PlainObjects, skew_s: float
) -> None:
    """Its producer was stalled for an hour, or the collector's clock is days ahead."""
    queue = Queue(plain)
    producer = await queue.producer(retry_s=PATIENT_S)
    await queue.produced(producer, b"before")
    await consumed(queue, 1)
    original = plain.replace
    plain.replace, gate = held(original)
    handle = await producer.produce([b"late"])
    await queue.time.passes(3600.0 if not skew_s else 1.0)
    plain.replace = original
    clock = Time()
    clock.now_s, clock.wall_s = queue.time.now_s, queue.time.wall_s + skew_s
    assert (await queue.collector(clock=clock).collect()).batches == 2
    assert batch_keys(plain) == [], "the late one is gone, too"
    gate.set()
    await queue.time.until(producer.flush())
    assert handle.watcher.result()
    assert entries_of(await everything(await queue.consumer())) == [b"late"]
    assert queue.metrics.for_queue(MANIFEST).counts[names.QUEUE_REPEATED_UPLOADS] == 1
    await queue.produced(producer, b"next")
    assert queue.metrics.for_queue(MANIFEST).counts[names.QUEUE_REPEATED_UPLOADS] == 1
    await producer.close()


@in_loop
async def test_batch_enqueued_while_the_collector_looks_is_kept(plain: PlainObjects) -> None:
    """Between its look at the manifest and its deletes there is no moment in which it can be."""
    queue = Queue(plain)
    producer = await queue.producer(retry_s=PATIENT_S)
    original = plain.replace
    plain.replace, gate = held(original)
    handle = await producer.produce([b"late"])
    await queue.time.passes(3600.0)
    plain.replace = original
    plain.delete, delete_gate = held(plain.delete)
    collecting = asyncio.ensure_future(queue.collector().collect())
    await quiet()
    gate.set()
    await queue.time.until(producer.flush())
    delete_gate.set()
    await collecting
    assert handle.watcher.result()
    assert entries_of(await everything(await queue.consumer())) == [b"late"]
    await producer.close()


@in_loop
async def test_delete_that_arrives_much_later_hits_nothing_new(plain: PlainObjects) -> None:
    """Names below the floor are never used again."""
    queue = Queue(plain)
    producer = await queue.producer()
    await queue.produced(producer, b"old")
    await consumed(queue, 1)
    await queue.time.passes(3600.0)
    original = plain.delete
    plain.delete, gate = held(original)
    collecting = asyncio.ensure_future(queue.collector().collect())
    await quiet()
    plain.delete = original
    queue.time.wall_s -= 7200.0
    await queue.produced(producer, b"new")
    gate.set()
    await collecting
    assert entries_of(await everything(await queue.consumer())) == [b"new"]
    await producer.close()


@in_loop
async def test_version_1_finds_its_batch_gone_before_it_acknowledges(plain: PlainObjects) -> None:
    """And stores it again under the same name, also where its time was over by then."""
    queue = Queue(plain, version=1)
    producer = await queue.producer()
    original = plain.replace
    plain.replace, gate = held(original)
    handle = await producer.produce([b"late"])
    await queue.time.passes(3600.0)
    plain.replace = original
    assert (await queue.collector().collect()).batches == 1
    gate.set()
    await queue.time.until(producer.flush())
    assert handle.watcher.result()
    assert entries_of(await everything(await queue.consumer())) == [b"late"]
    await producer.close()


@in_loop
async def test_clock_that_steps_back_loses_nothing(plain: PlainObjects) -> None:
    """The producer's, by years: its names go on growing, and its batches are kept."""
    queue = Queue(plain)
    producer = await queue.producer()
    await queue.produced(producer, b"a")
    queue.time.wall_s -= 1e8
    await queue.produced(producer, b"b")
    fresh = await queue.producer()
    await queue.produced(fresh, b"c")
    queue.time.wall_s += 1e8 + 1000.0
    await queue.collector().collect()
    assert entries_of(await everything(await queue.consumer())) == [b"a", b"b", b"c"]
    await producer.close()
    await fresh.close()


@in_loop
async def test_entry_with_an_old_name_behind_the_oldest_is_kept(plain: PlainObjects) -> None:
    """In a chunk or in the tail: what the manifest names is needed, whatever its name says."""
    queue = Queue(plain)
    slow = await queue.producer(tail_bytes=100, retry_s=PATIENT_S)
    quick = await queue.producer(tail_bytes=100)
    original = plain.replace
    plain.replace, gate = held(original)
    handle = await slow.produce([b"slow"])
    await queue.time.passes(1.0)
    plain.replace = original
    await queue.time.passes(100.0)
    await queue.produced(quick, b"quick")
    gate.set()
    await queue.time.until(slow.flush())
    await queue.produced(quick, b"last", b"very last")
    await queue.time.passes(10_000.0)
    assert handle.watcher.sequence == 1
    assert (await queue.collector().collect()).batches == 0
    found = entries_of(await everything(await queue.consumer()))
    assert found == [b"quick", b"slow", b"last", b"very last"]
    await slow.close()
    await quick.close()


@in_loop
async def test_consumer_collects_by_itself(plain: PlainObjects) -> None:
    """At its interval, and goes on when the store is silent."""
    queue = Queue(plain)
    producer = await queue.producer()
    await queue.produced(producer, b"a")
    script = Script()
    consumer = await queue.consumer(
        objects=FaultyObjects(plain, script), gc_interval_s=300.0, gc_grace_period_s=10.0
    )
    await consumer.next_batch()
    await consumer.ack(0)
    await consumer.flush()
    script.faults.append(Fault.FAIL_BEFORE)
    await queue.time.passes(301.0)
    assert len(batch_keys(plain)) == 1
    await queue.time.passes(300.0)
    assert batch_keys(plain) == []
    await consumer.close()
    await producer.close()
