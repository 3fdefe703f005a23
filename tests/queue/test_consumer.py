"""The consumer: order, acknowledgement, reading ahead, and batches that cannot be read."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING

import pytest

from penstock.metrics import names
from penstock.model.errors import (
    BatchDamaged,
    BatchMissing,
    InvalidArgument,
    InvalidSetting,
    ObjectsUnavailable,
    OffsetUnavailable,
    QueueClosed,
)
from penstock.queue import ConsumerSettings, fetch_batch
from penstock.queue.format import decode_manifest
from penstock.queue.keys import batch_id_of
from tests.queue.helpers import MANIFEST, Queue, batch_keys, entries_of, everything, quiet
from tests.servers.loops import in_loop
from tests.simulation.objects import Fault, FaultyObjects, Script

if TYPE_CHECKING:
    from tests.queue.plain_objects import PlainObjects

versions = pytest.mark.parametrize("version", [1, 2])
LETTERS = [b"a", b"b", b"c", b"d", b"e", b"f"]


async def filled(plain: PlainObjects, version: int = 2, **settings: int) -> Queue:
    """A queue with six batches."""
    queue = Queue(plain, version=version)
    producer = await queue.producer(**settings)
    await queue.produced(producer, *LETTERS)
    await producer.close()
    return queue


# --- order and acknowledgement -----------------------------------------------------------------


@versions
@in_loop
async def test_batches_come_in_order_to_the_end(plain: PlainObjects, version: int) -> None:
    """Then None, until there is more."""
    queue = await filled(plain, version)
    consumer = await queue.consumer()
    batches = await everything(consumer)
    assert entries_of(batches) == LETTERS
    assert [batch.sequence for batch in batches] == list(range(6))
    assert await consumer.next_batch() is None
    producer = await queue.producer()
    await queue.produced(producer, b"g")
    assert entries_of(await everything(consumer)) == [b"g"]
    await producer.close()


@versions
@in_loop
async def test_acknowledged_batches_leave_the_manifest_in_groups(
    plain: PlainObjects, version: int
) -> None:
    """Every so many; `flush` removes the rest."""
    queue = await filled(plain, version, tail_bytes=150)
    consumer = await queue.consumer(acks_per_dequeue=4)
    firsts = []
    for batch in await everything(consumer):
        await consumer.ack(batch.sequence)
        firsts.append(decode_manifest(plain.objects[MANIFEST]).first_sequence)
    assert firsts == [0, 0, 0, 4, 4, 4]
    await consumer.flush()
    manifest = decode_manifest(plain.objects[MANIFEST])
    assert (manifest.first_sequence, manifest.tail) == (6, b"")
    assert (manifest.first_chunk, manifest.dequeued_bytes) == (
        manifest.next_chunk,
        manifest.enqueued_bytes,
    )


@in_loop
async def test_acknowledgements_are_in_order(plain: PlainObjects) -> None:
    """Neither early, nor late, nor twice, nor of what nobody saw."""
    queue = await filled(plain)
    consumer = await queue.consumer()
    await consumer.next_batch()
    await consumer.next_batch()
    for wrong in (1, 5, -1):
        with pytest.raises(InvalidArgument):
            await consumer.ack(wrong)
    await consumer.ack(0)
    await consumer.ack(1)
    for wrong in (1, 2):
        with pytest.raises(InvalidArgument):
            await consumer.ack(wrong)
    with pytest.raises(InvalidArgument):
        await consumer.ack_through(6)
    assert consumer.acked == 1


@pytest.mark.parametrize(("last_acked", "expected"), [(None, LETTERS), (0, LETTERS[1:]), (5, [])])
@in_loop
async def test_consumer_goes_on_behind_what_was_stored(
    plain: PlainObjects, last_acked: int | None, expected: list[bytes]
) -> None:
    """Nothing twice, and nothing left out."""
    queue = await filled(plain, tail_bytes=150)
    consumer = await queue.consumer(last_acked)
    assert entries_of(await everything(consumer)) == expected
    await consumer.flush()
    first = decode_manifest(plain.objects[MANIFEST]).first_sequence
    assert first == (0 if last_acked is None else last_acked + 1)


@pytest.mark.parametrize("last_acked", [1, 6, 100])
@in_loop
async def test_start_that_would_leave_a_gap_is_refused(
    plain: PlainObjects, last_acked: int
) -> None:
    """What was removed, or never was: the queue is not the one that the caller thinks."""
    queue = await filled(plain)
    consumer = await queue.consumer(2)
    await consumer.flush()
    with pytest.raises(OffsetUnavailable) as caught:
        await queue.consumer(last_acked)
    assert (caught.value.earliest, caught.value.end) == (3, 6)
    assert await consumer.next_batch() is not None, "a refused consumer fences nobody"


@in_loop
async def test_consumer_without_initialize_is_refused(plain: PlainObjects) -> None:
    """It may not use the queue before it has claimed it."""
    consumer = await Queue(plain).consumer(initialize=False)
    for work in (consumer.next_batch, consumer.flush, lambda: consumer.ack(0)):
        with pytest.raises(InvalidArgument, match="initialize"):
            await work()


@in_loop
async def test_closed_consumer_has_dequeued_and_is_over(plain: PlainObjects) -> None:
    """Closing flushes; a second close does nothing."""
    queue = await filled(plain)
    async with await queue.consumer() as consumer:
        await consumer.next_batch()
        await consumer.ack(0)
    assert decode_manifest(plain.objects[MANIFEST]).first_sequence == 1
    with pytest.raises(QueueClosed):
        await consumer.next_batch()
    with pytest.raises(QueueClosed):
        await consumer.initialize()
    await consumer.close()


@in_loop
async def test_peeked_entries_are_fetched_elsewhere_and_acknowledged_together(
    plain: PlainObjects,
) -> None:
    """As a driver does whose executors fetch the batches."""
    queue = await filled(plain, tail_bytes=150)
    consumer = await queue.consumer()
    entries = await consumer.peek(4)
    assert [entry.sequence for entry in entries] == [0, 1, 2, 3]
    sent = pickle.loads(pickle.dumps(entries))  # noqa: S301 - our own bytes
    fetched = [await fetch_batch(plain, entry) for entry in sent]
    assert entries_of(fetched) == LETTERS[:4]
    await consumer.ack_through(3)
    assert [entry.sequence for entry in await consumer.peek(10)] == [4, 5]
    assert [entry.sequence for entry in await consumer.peek(10, after=4)] == [5]
    assert entries_of(await everything(consumer)) == LETTERS[4:]


# --- reading ahead -----------------------------------------------------------------------------


@in_loop
async def test_batches_are_fetched_ahead_and_at_the_same_time(plain: PlainObjects) -> None:
    """As many as told beyond the one that is asked for."""
    queue = await filled(plain)
    consumer = await queue.consumer(read_ahead_batches=2)
    plain.calls.clear()
    await consumer.next_batch()
    await quiet()
    fetched = [key for operation, key in plain.calls if operation == "get" and batch_id_of(key)]
    assert fetched == batch_keys(plain)[:3]
    await consumer.close()


@in_loop
async def test_reading_ahead_is_bounded_by_bytes(plain: PlainObjects) -> None:
    """One batch is always fetched."""
    queue = await filled(plain)
    consumer = await queue.consumer(read_ahead_batches=5, read_ahead_bytes=1)
    plain.calls.clear()
    await consumer.next_batch()
    await quiet()
    fetched = [key for operation, key in plain.calls if operation == "get" and batch_id_of(key)]
    assert len(fetched) == 1
    await consumer.close()


@in_loop
async def test_cancelled_call_loses_no_batch(plain: PlainObjects) -> None:
    """The next one gets it."""
    queue = await filled(plain)
    consumer = await queue.consumer()
    for turns in range(6):
        task = asyncio.ensure_future(consumer.next_batch())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            break
    rest = entries_of(await everything(consumer))
    assert rest in (LETTERS, LETTERS[1:])
    assert (rest == LETTERS[1:]) == (not task.cancelled())


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TRUNCATE])
@in_loop
async def test_silence_is_not_damage(plain: PlainObjects, fault: Fault) -> None:
    """Whatever was asked for; the next call gives the same batch."""
    queue = await filled(plain, tail_bytes=150)
    script = Script()
    faulty = FaultyObjects(plain, script)
    consumer = await queue.consumer(objects=faulty, acks_per_dequeue=2, read_ahead_batches=0)
    found, silences = [], 0
    for attempt in range(60):
        script.faults.extend([*[None] * (attempt % 4), fault])
        try:
            batch = await consumer.next_batch()
        except ObjectsUnavailable:
            silences += 1
            continue
        finally:
            script.faults.clear()
        if batch is not None:
            found.append(batch)
            await consumer.ack(batch.sequence)
    assert silences > 0
    assert entries_of(found) == LETTERS
    await consumer.close()


# --- batches that cannot be read ---------------------------------------------------------------


@versions
@in_loop
async def test_missing_batch_is_named_until_it_is_skipped(
    plain: PlainObjects, version: int
) -> None:
    """Nothing behind it is handed out before somebody has decided."""
    queue = await filled(plain, version)
    key = batch_keys(plain)[1]
    kept = plain.objects.pop(key)
    consumer = await queue.consumer()
    assert (await consumer.next_batch()).entries == [b"a"]
    for _ in range(2):
        with pytest.raises(BatchMissing) as caught:
            await consumer.next_batch()
        assert (caught.value.sequence, caught.value.location) == (1, key)
    for wrong in (0, 2):
        with pytest.raises(InvalidArgument):
            await consumer.skip(wrong)
    await consumer.skip(1)
    assert entries_of(await everything(consumer)) == LETTERS[2:]
    for sequence in range(6):
        await consumer.ack(sequence)
    assert queue.metrics.for_queue(MANIFEST).counts[names.QUEUE_SKIPPED_BATCHES] == 1
    assert kept


@in_loop
async def test_batch_that_is_brought_back_is_handed_out(plain: PlainObjects) -> None:
    """Nobody has to start anything again."""
    queue = await filled(plain)
    key = batch_keys(plain)[0]
    kept = plain.objects.pop(key)
    consumer = await queue.consumer()
    with pytest.raises(BatchMissing):
        await consumer.next_batch()
    plain.write(key, kept)
    assert entries_of(await everything(consumer)) == LETTERS


@in_loop
async def test_flipped_byte_in_any_batch_is_found(plain: PlainObjects) -> None:
    """Wherever it is; nothing wrong is handed out."""
    queue = await filled(plain)
    key = batch_keys(plain)[0]
    whole = plain.objects[key]
    for at in range(len(whole)):
        plain.write(key, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        consumer = await queue.consumer()
        with pytest.raises(BatchDamaged):
            await consumer.next_batch()
        await consumer.close()


@versions
@in_loop
async def test_swapped_batches_are_found(plain: PlainObjects, version: int) -> None:
    """In version 2 a batch knows its name; version 1 cannot tell."""
    queue = await filled(plain, version)
    one, two = batch_keys(plain)[:2]
    first, second = plain.objects[one], plain.objects[two]
    plain.write(one, second)
    plain.write(two, first)
    consumer = await queue.consumer()
    if version == 1:
        assert (await consumer.next_batch()).entries == [b"b"]
    else:
        with pytest.raises(BatchDamaged, match="another batch"):
            await consumer.next_batch()
    await consumer.close()


@in_loop
async def test_gauges_say_what_waits(plain: PlainObjects) -> None:
    """How many, how many bytes, since when."""
    queue = await filled(plain)
    consumer = await queue.consumer()
    await queue.time.passes(7.0)
    for _ in range(2):
        await consumer.next_batch()
    gauges = queue.metrics.for_queue(MANIFEST).gauges()
    size = sum(len(plain.objects[key]) for key in batch_keys(plain))
    assert (gauges[names.QUEUE_LENGTH], gauges[names.QUEUE_WAITING_BYTES]) == (6, size)
    assert gauges[names.QUEUE_OLDEST_SECONDS] >= 7.0
    await consumer.ack_through(5)
    await consumer.flush()
    assert await consumer.next_batch() is None
    gauges = queue.metrics.for_queue(MANIFEST).gauges()
    assert set(gauges.values()) == {0}
    text = queue.metrics.exposition().decode()
    assert f'penstock_queue_length{{queue="{MANIFEST}"}} 0.0' in text


@pytest.mark.parametrize(
    "wrong", [{"acks_per_dequeue": 0}, {"read_ahead_batches": -1}, {"gc_interval_s": 0.0}]
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    """Before anybody is fenced."""
    with pytest.raises(InvalidSetting):
        ConsumerSettings(**wrong)
