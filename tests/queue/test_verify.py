"""Verification names what is damaged, and how many batches that costs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from penstock.queue.format import decode_manifest
from penstock.queue.keys import chunk_key
from penstock.queue.verify import verify_queue
from tests.queue.helpers import MANIFEST, Queue, batch_keys
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
    assert (report.batches, report.messages, report.damage) == (10, 10, [])
    assert report.bytes_checked == sum(read) == manifest.enqueued_bytes - manifest.dequeued_bytes
    assert report.files_checked == 2 + chunks + 10
    assert plain.objects == before


@versions
@in_loop
async def test_missing_and_damaged_batches_are_named(plain: PlainObjects, version: int) -> None:
    """Each with what it costs; the others are counted."""
    await filled(plain, version)
    keys = batch_keys(plain)
    plain.objects.pop(keys[0])
    plain.objects.pop(keys[4])
    plain.write(keys[7], b"rubbish")
    report = await verify_queue(plain)
    found = [(damage.file, damage.kind, damage.messages_lost) for damage in report.damage]
    assert found == [(keys[4], "batch", 1), (keys[7], "batch", 1)]
    assert report.batches == 8


@in_loop
async def test_lost_chunk_names_the_batches_in_it(plain: PlainObjects) -> None:
    """Those between what is known before it and behind it."""
    await filled(plain)
    first = decode_manifest(plain.objects[MANIFEST]).first_chunk
    plain.objects.pop(chunk_key(MANIFEST, first + 1))
    plain.write(chunk_key(MANIFEST, first + 2), b"rubbish")
    report = await verify_queue(plain)
    assert [damage.file for damage in report.damage] == [
        chunk_key(MANIFEST, first + 1),
        chunk_key(MANIFEST, first + 2),
    ]
    told = [re.search(r"batches (\d+) to (\d+) are out", each.detail) for each in report.damage]
    lost = [int(one[2]) + 1 - int(one[1]) for one in told if one is not None]
    assert lost == [damage.messages_lost for damage in report.damage]
    assert report.batches + sum(lost) == 10


@in_loop
async def test_manifest_in_doubt_is_the_fault(plain: PlainObjects) -> None:
    """Nothing else can be said then."""
    await filled(plain)
    kept = plain.objects.pop(MANIFEST)
    assert [damage.file for damage in (await verify_queue(plain)).damage] == [MANIFEST]
    plain.write(MANIFEST, kept[:-1])
    assert [damage.file for damage in (await verify_queue(plain)).damage] == [MANIFEST]
    plain.write(MANIFEST, kept)
    plain.write(f"{MANIFEST}.id", b"{}")
    (damage,) = (await verify_queue(plain)).damage
    assert f"{MANIFEST}.id" in damage.detail


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
    assert (report.batches, report.damage) == (9, [])


@in_loop
async def test_place_without_a_queue_is_said_so(plain: PlainObjects) -> None:
    """`fsck` then has nothing to call sound."""
    assert (await verify_queue(plain)).is_empty
