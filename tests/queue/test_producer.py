"""The producer: batches, order, back-pressure, and what its handles say."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from penstock.metrics import names
from penstock.model.errors import (
    InvalidArgument,
    InvalidSetting,
    MessageTooLarge,
    ObjectsUnavailable,
    OutcomeUnknown,
    QueueClosed,
    QueueFull,
    QueueUnreachable,
)
from penstock.queue import CompressionType, Metadata, ProducerSettings
from penstock.queue.batch import decode_batch
from penstock.queue.keys import batch_id_of
from tests.queue.helpers import MANIFEST, START_MS, Queue, entries_of, everything, quiet
from tests.queue.plain_objects import PlainObjects
from tests.servers.loops import in_loop
from tests.simulation.objects import Fault, FaultyObjects, Script

versions = pytest.mark.parametrize("version", [1, 2])


def batches_of(plain: PlainObjects) -> list[list[bytes]]:
    """The records of each batch that is stored, oldest first."""
    keys = sorted(key for key in plain.objects if batch_id_of(key))
    return [decode_batch(plain.objects[key], max_record_bytes=10**6) for key in keys]


class FailingAppends:
    """A plan: the first swaps of the manifest go wrong in this way."""

    def __init__(self, fault: Fault, count: int) -> None:
        self.fault = fault
        self.left = count

    def __call__(self, operation: str, key: str) -> Fault | None:
        """The fault, as often as it was asked for."""
        if operation == "replace" and key == MANIFEST and self.left:
            self.left -= 1
            return self.fault
        return None


# --- batches -----------------------------------------------------------------------------------


@in_loop
async def test_calls_within_the_interval_share_a_batch(plain: PlainObjects) -> None:
    """Each with metadata of its own, which say where its entries begin."""
    queue = Queue(plain)
    producer, consumer = await queue.producer(), await queue.consumer()
    one = await producer.produce([b"a", b"b"], b"first")
    await queue.time.passes(0.05)
    two = await producer.produce([b"c"], b"second")
    assert one.watcher.result() is None
    await queue.time.passes(0.06)
    assert (one.watcher.result(), two.watcher.result()) == (True, True)
    (batch,) = await everything(consumer)
    assert batch.entries == [b"a", b"b", b"c"]
    assert batch.metadata == (
        Metadata(0, START_MS, b"first"),
        Metadata(2, START_MS + 50, b"second"),
    )
    assert [entries for _, entries in batch.ranges()] == [[b"a", b"b"], [b"c"]]
    await producer.close()


@in_loop
async def test_batch_over_its_size_does_not_wait(plain: PlainObjects) -> None:
    """The interval bounds latency, the size bounds memory."""
    queue = Queue(plain)
    producer = await queue.producer(flush_size_bytes=10, flush_interval_s=3600.0)
    small = await producer.produce([b"12345678"], b"")
    await quiet()
    assert small.watcher.result() is None
    await producer.produce([b"123"], b"")
    await queue.time.passes(1.0)
    assert small.watcher.result()
    await producer.close()


@versions
@in_loop
async def test_close_stores_what_is_there(plain: PlainObjects, version: int) -> None:
    """And takes nothing more; a second close does nothing."""
    queue = Queue(plain, version=version)
    producer = await queue.producer(flush_interval_s=3600.0)
    handle = await producer.produce([b"last"])
    await queue.time.until(producer.close())
    assert handle.watcher.result()
    assert batches_of(plain) == [[b"last"]]
    with pytest.raises(QueueClosed):
        await producer.produce([b"more"])
    await producer.close()


@in_loop
async def test_batches_are_packed_when_told_to(plain: PlainObjects) -> None:
    """As one unit, in both directions."""
    queue = Queue(plain)
    producer = await queue.producer(batch_compression=CompressionType.ZSTD)
    await queue.produced(producer, b"x" * 10_000)
    (data,) = [data for key, data in plain.objects.items() if batch_id_of(key)]
    assert len(data) < 200
    assert batches_of(plain) == [[b"x" * 10_000]]
    await producer.close()


@in_loop
async def test_large_batch_is_encoded_beside_the_loop(plain: PlainObjects) -> None:
    """And comes back whole."""
    queue = Queue(plain)
    producer, consumer = await queue.producer(), await queue.consumer()
    await queue.produced(producer, b"x" * 400_000)
    assert entries_of(await queue.time.until(everything(consumer))) == [b"x" * 400_000]
    await producer.close()


@in_loop
async def test_stored_batches_are_freed(plain: PlainObjects) -> None:
    """Not kept by the timer that would have ended them."""
    queue = Queue(plain)
    producer = await queue.producer(flush_interval_s=3600.0)
    handle = await producer.produce([b"x"])
    await queue.time.until(producer.flush())
    watcher = weakref.ref(handle.watcher)
    del handle
    await quiet()
    gc.collect()
    assert watcher() is None
    await producer.close()


# --- order -------------------------------------------------------------------------------------


@in_loop
async def test_batches_are_enqueued_in_order_whichever_is_stored_first(plain: PlainObjects) -> None:
    """The second waits for the first, then one append takes both."""
    first_upload = asyncio.Event()
    original = plain.put

    async def slow_put(key: str, data: object) -> object:
        if not first_upload.is_set() and not slow:
            slow.append(key)
            await first_upload.wait()
        return await original(key, data)

    slow: list[str] = []
    plain.put = slow_put
    queue = Queue(plain)
    producer, consumer = await queue.producer(flush_size_bytes=0), await queue.consumer()
    handles = [await producer.produce([b"%d" % number]) for number in range(3)]
    await queue.time.passes(1.0)
    assert [handle.watcher.result() for handle in handles] == [None] * 3
    assert len(batches_of(plain)) == 2
    first_upload.set()
    await queue.time.until(producer.flush())
    assert entries_of(await everything(consumer)) == [b"0", b"1", b"2"]
    assert queue.metrics.for_queue(MANIFEST).counts[names.QUEUE_APPENDS] == 1
    await producer.close()


@in_loop
async def test_uploads_overlap_up_to_their_number(plain: PlainObjects) -> None:
    """No more are stored at a time than told."""
    under_way, most = set[str](), 0
    original = plain.put

    async def counted(key: str, data: object) -> object:
        nonlocal most
        under_way.add(key)
        most = max(most, len(under_way))
        await quiet()
        under_way.remove(key)
        return await original(key, data)

    plain.put = counted
    queue = Queue(plain)
    producer = await queue.producer(flush_size_bytes=0, max_uploads=3)
    for number in range(9):
        await producer.produce([b"%d" % number])
    await queue.time.until(producer.flush())
    assert most == 3
    await producer.close()


# --- back-pressure -----------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [{"max_buffered_inputs": 2}, {"max_buffered_bytes": 10}])
@in_loop
async def test_full_buffer_makes_callers_wait(plain: PlainObjects, bound: dict[str, int]) -> None:
    """By calls and by bytes; or refuses where told not to wait, and takes nothing."""
    queue = Queue(plain)
    producer, consumer = await queue.producer(**bound), await queue.consumer()
    for entry in (b"12345", b"67890"):
        await producer.produce([entry])
    with pytest.raises(QueueFull):
        await producer.produce([b"third"], block=False)
    waiting = asyncio.ensure_future(producer.produce([b"third"]))
    cancelled = asyncio.ensure_future(producer.produce([b"fourth"]))
    await quiet()
    cancelled.cancel()
    handle = await queue.time.until(waiting)
    await queue.time.until(producer.close())
    assert handle.watcher.result()
    assert producer.buffered_bytes == 0
    assert entries_of(await everything(consumer)) == [b"12345", b"67890", b"third"]


@in_loop
async def test_call_that_can_never_succeed_is_refused(plain: PlainObjects) -> None:
    """Rather than waiting for room for ever."""
    producer = await Queue(plain).producer(max_buffered_bytes=10)
    with pytest.raises(MessageTooLarge):
        await producer.produce([b"12345678901"])
    for wrong in ([], [5], ["text"]):
        with pytest.raises(InvalidArgument):
            await producer.produce(wrong)
    await producer.close()


@in_loop
async def test_metadata_do_not_make_the_manifest_large(plain: PlainObjects) -> None:
    """They are bounded for each call, and much of them ends a batch."""
    queue = Queue(plain)
    producer = await queue.producer(flush_interval_s=3600.0)
    with pytest.raises(MessageTooLarge, match="metadata"):
        await producer.produce([b"a"], bytes(65_537))
    handles = [await producer.produce([b"a"], bytes(65_536)) for _ in range(9)]
    await queue.time.passes(1.0)
    assert [handle.watcher.result() for handle in handles] == [True] * 5 + [None] * 4
    await producer.abandon()


# --- faults ------------------------------------------------------------------------------------


@versions
@pytest.mark.parametrize("fault", list(Fault))
@in_loop
async def test_any_fault_of_a_swap_enqueues_once(
    plain: PlainObjects, version: int, fault: Fault
) -> None:
    """A lost answer is recognised as success by reading back."""
    queue = Queue(FaultyObjects(plain, FailingAppends(fault, 2)), version=version)
    producer = await queue.producer()
    await queue.produced(producer, b"one", b"two", b"three")
    consumer = await queue.consumer(objects=plain)
    assert entries_of(await everything(consumer)) == [b"one", b"two", b"three"]
    await producer.close()


@in_loop
async def test_lost_answer_is_recognised_after_others_appended_and_it_was_dequeued(
    plain: PlainObjects,
) -> None:
    """The entry is gone from the manifest, but the manifest remembers the writer."""
    queue = Queue(plain)
    other, consumer = await queue.producer(), await queue.consumer(acks_per_dequeue=1)
    script = FailingAppends(Fault.FAIL_AFTER, 1)
    producer = await queue.producer(objects=FaultyObjects(plain, script))
    handle = await producer.produce([b"mine"])
    await queue.time.passes(0.1)
    assert script.left == 0
    await queue.produced(other, b"other")
    for batch in await everything(consumer):
        await consumer.ack(batch.sequence)
    await queue.time.until(producer.flush())
    assert (handle.watcher.result(), handle.watcher.sequence) == (True, 0)
    assert await everything(consumer) == []
    await producer.close()
    await other.close()


@in_loop
async def test_outcome_that_nobody_can_know_is_said_to_be_unknown(plain: PlainObjects) -> None:
    """Version 1 remembers no writers: an entry that was dequeued may have been this one."""
    queue = Queue(plain, version=1)
    other, consumer = await queue.producer(), await queue.consumer(acks_per_dequeue=1)
    script = FailingAppends(Fault.FAIL_AFTER, 1)
    producer = await queue.producer(objects=FaultyObjects(plain, script))
    handle = await producer.produce([b"mine"])
    await queue.time.passes(0.1)
    await queue.produced(other, b"other")
    for batch in await everything(consumer):
        await consumer.ack(batch.sequence)
    await queue.time.until(producer.flush())
    with pytest.raises(OutcomeUnknown):
        handle.watcher.result()
    assert (await queue.produced(producer, b"next")) == [2]
    await producer.close()
    await other.close()


@in_loop
async def test_store_that_stays_silent_fails_the_handles(plain: PlainObjects) -> None:
    """In time, each of them, and truly: the entries are not in the queue later either."""
    queue = Queue(plain)
    script = Script()
    producer = await queue.producer(objects=FaultyObjects(plain, script), retry_s=3.0)
    script.faults.extend([Fault.FAIL_BEFORE] * 10_000)
    handles = [await producer.produce([b"%d" % number]) for number in range(2)]
    await queue.time.passes(60.0)
    for handle in handles:
        with pytest.raises(QueueUnreachable):
            handle.watcher.result()
    script.faults.clear()
    assert await queue.produced(producer, b"later") == [0]
    assert batches_of(plain) == [[b"later"]]
    await producer.close()


@in_loop
async def test_silence_in_the_middle_of_an_append_is_said_to_be_unknown(
    plain: PlainObjects,
) -> None:
    """The swap may still come through."""
    queue = Queue(plain)
    plan = FailingAppends(Fault.FAIL_BEFORE, 10_000)
    producer = await queue.producer(objects=FaultyObjects(plain, plan), retry_s=3.0)
    handle = await producer.produce([b"a"])
    await queue.time.passes(60.0)
    with pytest.raises(OutcomeUnknown):
        handle.watcher.result()
    plan.left = 0
    await queue.produced(producer, b"b")
    await producer.close()


@in_loop
async def test_error_that_no_retry_mends_stops_the_producer(plain: PlainObjects) -> None:
    """Every handle hears of it, and the next call."""
    queue = Queue(plain)
    producer = await queue.producer()

    async def denied(key: str, _data: object) -> None:
        raise PermissionError(f"not allowed to write {key}")

    plain.put = denied
    handle = await producer.produce([b"a"])
    await queue.time.passes(1.0)
    with pytest.raises(OutcomeUnknown, match="not allowed"):
        handle.watcher.result()
    with pytest.raises(OutcomeUnknown, match="not allowed"):
        await producer.produce([b"b"])
    await producer.close()


@in_loop
async def test_conflicts_are_counted_and_overcome(plain: PlainObjects) -> None:
    """Four producers at once: everything is enqueued once."""
    queue = Queue(plain)
    producers = [await queue.producer(flush_size_bytes=0) for _ in range(4)]
    for number in range(5):
        for index, producer in enumerate(producers):
            await producer.produce([b"%d.%d" % (index, number)])
    for producer in producers:
        await queue.time.until(producer.close())
    found = entries_of(await everything(await queue.consumer()))
    assert sorted(found) == sorted(b"%d.%d" % (i, n) for i in range(4) for n in range(5))
    counts = queue.metrics.for_queue(MANIFEST).counts
    assert counts[names.QUEUE_CONFLICTS] > 0
    assert counts[names.QUEUE_ENQUEUED_BATCHES] == 20


@in_loop
async def test_abandoned_producer_leaves_no_handle_open(plain: PlainObjects) -> None:
    """Nobody waits for ever."""
    queue = Queue(plain)
    producer = await queue.producer()
    handle = await producer.produce([b"a"])
    await producer.abandon()
    with pytest.raises(OutcomeUnknown):
        await handle.watcher.await_durable()


@in_loop
async def test_opening_without_an_answer_can_be_repeated(plain: PlainObjects) -> None:
    """Wherever the answer was lost while the queue was made."""
    for fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER):
        for position in range(5):
            store = PlainObjects()
            script = Script([*[None] * position, fault])
            queue = Queue(FaultyObjects(store, script))
            try:
                producer = await queue.producer()
            except ObjectsUnavailable:
                producer = await queue.producer()
            assert await queue.produced(producer, b"a") == [0]
            await producer.close()
    assert not plain.objects


@pytest.mark.parametrize(
    "wrong",
    [
        {"flush_interval_s": -1},
        {"max_buffered_inputs": 0},
        {"batch_compression": 7},
        {"manifest_version": 3},
        {"data_path_prefix": "a//b"},
        {"manifest_path": "../x"},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    """Before anything is stored."""
    with pytest.raises(InvalidSetting):
        ProducerSettings(**wrong)
