"""Verification names what is damaged, and how many batches that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.model.errors import ObjectMissing
from penstock.queue.format import decode_manifest
from penstock.queue.keys import batch_id_of, chunk_key
from penstock.queue.verify import verify_queue
from tests.queue.helpers import MANIFEST, Queue
from tests.servers.loops import in_loop

if TYPE_CHECKING:
    from tests.queue.plain_objects import PlainObjects

versions = pytest.mark.parametrize("version", [1, 2])


async def filled(plain: PlainObjects, version: int = 2) -> Queue:
    """A queue with twelve batches, the first two of them dequeued."""
    queue = Queue(plain, version=version)
    producer = await queue.producer(tail_bytes=150)
    await queue.produced(producer, *[b"%d" % number for number in range(12)])
    await producer.close()
    consumer = await queue.consumer(1)
    await consumer.close()
    return queue


def batch_keys(plain: PlainObjects) -> list[str]:
    """The keys of the batches, oldest first."""
    return sorted(key for key in plain.objects if batch_id_of(key))


@versions
@in_loop
async def test_sound_queue_has_no_faults(plain: PlainObjects, version: int) -> None:
    """Everything that waits was read, and nothing was changed."""
    await filled(plain, version)
    before = dict(plain.objects)
    read: list[int] = []
    report = await verify_queue(plain, progress=read.append)
    manifest = decode_manifest(plain.objects[MANIFEST])
    chunks = manifest.next_chunk - manifest.first_chunk
    assert (report.batches, report.records, report.faults) == (10, 10, ())
    assert report.bytes == sum(read) == manifest.enqueued_bytes - manifest.dequeued_bytes
    assert report.objects == 2 + chunks + 10
    assert plain.objects == before


@versions
@in_loop
async def test_missing_and_damaged_batches_are_named(plain: PlainObjects, version: int) -> None:
    """Each with its sequence; the others are counted."""
    await filled(plain, version)
    keys = batch_keys(plain)
    plain.objects.pop(keys[0])
    plain.objects.pop(keys[4])
    plain.write(keys[7], b"rubbish")
    report = await verify_queue(plain)
    found = [(fault.key, fault.first_sequence, fault.end_sequence) for fault in report.faults]
    assert found == [(keys[4], 4, 5), (keys[7], 7, 8)]
    assert [(fault.batches_lost, fault.records_lost) for fault in report.faults] == [(1, 1)] * 2
    assert report.batches == 8


@in_loop
async def test_lost_chunk_names_the_batches_in_it(plain: PlainObjects) -> None:
    """Those between what is known before it and behind it."""
    await filled(plain)
    first = decode_manifest(plain.objects[MANIFEST]).first_chunk
    plain.objects.pop(chunk_key(MANIFEST, first + 1))
    plain.write(chunk_key(MANIFEST, first + 2), b"rubbish")
    report = await verify_queue(plain)
    assert [fault.key for fault in report.faults] == [
        chunk_key(MANIFEST, first + 1),
        chunk_key(MANIFEST, first + 2),
    ]
    lost = {
        sequence
        for fault in report.faults
        for sequence in range(fault.first_sequence, fault.end_sequence)
    }
    assert report.batches + len(lost) == 10
    assert sum(fault.records_lost for fault in report.faults) == len(lost)


@in_loop
async def test_manifest_in_doubt_is_the_fault(plain: PlainObjects) -> None:
    """Nothing else can be said then."""
    await filled(plain)
    kept = plain.objects.pop(MANIFEST)
    assert [fault.key for fault in (await verify_queue(plain)).faults] == [MANIFEST]
    plain.write(MANIFEST, kept[:-1])
    assert [fault.key for fault in (await verify_queue(plain)).faults] == [MANIFEST]
    plain.write(MANIFEST, kept)
    plain.write(f"{MANIFEST}.id", b"{}")
    (fault,) = (await verify_queue(plain)).faults
    assert f"{MANIFEST}.id" in fault.problem


@in_loop
async def test_batch_that_is_consumed_meanwhile_is_no_fault(plain: PlainObjects) -> None:
    """It is missing because nobody needs it any more."""
    queue = await filled(plain)
    keys = batch_keys(plain)
    original = plain.get

    async def get(key: str, **named: object) -> object:
        if key == keys[2]:
            plain.get = original
            consumer = await queue.consumer(5)
            await consumer.close()
            plain.objects.pop(key)
        return await original(key, **named)

    plain.get = get
    report = await verify_queue(plain)
    assert (report.batches, report.faults) == (9, ())


@in_loop
async def test_place_without_a_queue_is_said_so(plain: PlainObjects) -> None:
    """Rather than being called sound."""
    with pytest.raises(ObjectMissing):
        await verify_queue(plain)
