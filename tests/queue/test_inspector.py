"""Looking into a queue changes nothing and disturbs nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.model.errors import Damaged, ObjectMissing
from penstock.queue import Inspector
from penstock.queue.keys import batch_id_of, chunk_key
from tests.queue.helpers import MANIFEST, START_MS, Queue
from tests.servers.loops import in_loop

if TYPE_CHECKING:
    from tests.queue.plain_objects import PlainObjects

versions = pytest.mark.parametrize("version", [1, 2])


async def filled(plain: PlainObjects, version: int = 2) -> Queue:
    """A queue with six batches, in chunks where there are some."""
    queue = Queue(plain, version=version)
    producer = await queue.producer(tail_bytes=100)
    await queue.produced(producer, b"a", b"b", b"c", b"d", b"e", b"f")
    await producer.close()
    return queue


@versions
@in_loop
async def test_status_says_what_waits(plain: PlainObjects, version: int) -> None:
    """In numbers that add up."""
    queue = await filled(plain, version)
    consumer = await queue.consumer(1)
    await consumer.flush()
    await queue.time.passes(7.0)
    status = await Inspector(plain, clock=queue.time).status()
    keys = sorted(key for key in plain.objects if batch_id_of(key))
    assert (status.manifest_version, status.epoch) == (version, 1)
    assert (status.first_sequence, status.next_sequence, status.waiting) == (2, 6, 4)
    assert status.waiting_bytes == sum(len(plain.objects[key]) for key in keys[2:])
    assert status.manifest_bytes == len(plain.objects[MANIFEST])
    assert status.oldest_time_ms is not None
    assert START_MS <= status.oldest_time_ms < START_MS + 1000
    assert status.oldest_age_s >= 6.0
    assert (status.queue_id is None) == (version == 1)


@in_loop
async def test_status_of_an_empty_queue(plain: PlainObjects) -> None:
    """Nothing waits, so nothing is old."""
    queue = Queue(plain)
    await queue.consumer()
    status = await Inspector(plain).status()
    assert (status.waiting, status.waiting_bytes, status.oldest_age_s) == (0, 0, None)


@versions
@in_loop
async def test_inspector_disturbs_nobody(plain: PlainObjects, version: int) -> None:
    """The store is as before, and the consumer goes on."""
    queue = await filled(plain, version)
    consumer = await queue.consumer()
    before = dict(plain.objects)
    inspector = Inspector(plain)
    await inspector.status()
    entries = [entry async for entry in inspector.entries()]
    assert [(await inspector.batch(entry)).entries for entry in entries][-1] == [b"f"]
    assert plain.objects == before
    assert (await consumer.next_batch()).entries == [b"a"]


@in_loop
async def test_entries_begin_where_told(plain: PlainObjects) -> None:
    """Or with the oldest that waits."""
    queue = await filled(plain)
    consumer = await queue.consumer(1)
    await consumer.flush()
    for begin, first in ((None, 2), (0, 2), (4, 4), (99, 6)):
        found = [entry.sequence async for entry in Inspector(plain).entries(begin)]
        assert found == list(range(first, 6))


@in_loop
async def test_chunk_that_is_consumed_meanwhile_is_left_out(plain: PlainObjects) -> None:
    """The reader was slower than consumer and garbage collector."""
    queue = await filled(plain)
    inspector = Inspector(plain)
    await inspector.status()
    original = inspector._manifest.open
    first = await original(create=False)

    async def stale(**_: object) -> object:
        return first

    consumer = await queue.consumer(3)
    await consumer.flush()
    await queue.collector().collect()
    inspector._manifest.open = stale
    inspector._entries._heads.clear()
    inspector._entries._chunks.clear()
    assert [entry.sequence async for entry in inspector.entries()] == [4, 5]


@in_loop
async def test_chunk_that_is_missing_is_damage(plain: PlainObjects) -> None:
    """Nobody consumed it."""
    await filled(plain)
    plain.objects.pop(chunk_key(MANIFEST, 0))
    with pytest.raises(Damaged):
        _ = [entry async for entry in Inspector(plain).entries()]


@in_loop
async def test_place_without_a_queue_is_said_so(plain: PlainObjects) -> None:
    """And stays so."""
    with pytest.raises(ObjectMissing, match="no queue"):
        await Inspector(plain).status()
    assert not plain.objects
