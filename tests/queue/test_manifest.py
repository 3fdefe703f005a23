"""A queue is made once, and a manifest that is gone or wrong is never replaced by an empty one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.model.errors import Damaged, FormatError, InvalidSetting, ManifestLost, ObjectMissing
from penstock.queue import ConsumerSettings, GarbageCollector, GarbageSettings, QueueSettings
from penstock.queue.format import decode_manifest, encode_manifest
from penstock.queue.manifest import ManifestObject
from tests.queue.helpers import MANIFEST, Queue, entries_of, everything
from tests.servers.loops import in_loop

if TYPE_CHECKING:
    from tests.queue.plain_objects import PlainObjects

versions = pytest.mark.parametrize("version", [1, 2])


@versions
@in_loop
async def test_queue_is_made_with_an_identity(plain: PlainObjects, version: int) -> None:
    """The manifest first, then what says that there is one, and whose the batches are."""
    await ManifestObject(plain, QueueSettings(manifest_version=version)).open()
    assert list(plain.objects) == [MANIFEST, f"{MANIFEST}.id", "ingest/owner.id"]
    assert decode_manifest(plain.objects[MANIFEST]).version == version


@in_loop
async def test_queue_that_exists_keeps_its_version(plain: PlainObjects) -> None:
    """Whatever the settings of the next one say."""
    await ManifestObject(plain, QueueSettings(manifest_version=1)).open()
    loaded = await ManifestObject(plain, QueueSettings()).open()
    assert loaded.manifest.version == 1


@in_loop
async def test_manifest_of_another_implementation_gets_an_identity(plain: PlainObjects) -> None:
    """From then on it cannot vanish unnoticed."""
    plain.write(MANIFEST, bytes.fromhex("00000000 0500000000000000 0300000000000000 0100"))
    await ManifestObject(plain, QueueSettings()).open()
    plain.objects.pop(MANIFEST)
    with pytest.raises(ManifestLost):
        await ManifestObject(plain, QueueSettings()).open()


@versions
@in_loop
async def test_deleted_manifest_is_refused_by_everyone(plain: PlainObjects, version: int) -> None:
    """Those that had it open, and those that come."""
    queue = Queue(plain, version=version)
    producer, consumer = await queue.producer(), await queue.consumer()
    await queue.produced(producer, b"kept")
    plain.objects.pop(MANIFEST)
    handle = await producer.produce([b"more"])
    await queue.time.until(producer.flush())
    with pytest.raises(ManifestLost):
        handle.watcher.result()
    with pytest.raises(ManifestLost):
        await producer.produce([b"more"])
    with pytest.raises(ManifestLost):
        await consumer.next_batch()
    for part in (queue.producer, queue.consumer, queue.collector().collect):
        with pytest.raises(ManifestLost):
            await part()
    assert MANIFEST not in plain.objects
    await producer.abandon()


@versions
@in_loop
async def test_truncated_manifest_is_refused_by_everyone(plain: PlainObjects, version: int) -> None:
    """At any length; nothing is written over it."""
    queue = Queue(plain, version=version)
    producer = await queue.producer()
    await queue.produced(producer, b"one", b"two")
    await producer.close()
    whole = plain.objects[MANIFEST]
    for length in range(len(whole)):
        plain.write(MANIFEST, whole[:length])
        for part in (queue.producer, queue.consumer, queue.collector().collect):
            with pytest.raises(FormatError):
                await part()
        assert plain.objects[MANIFEST] == whole[:length]


@pytest.mark.parametrize("position", range(4))
@in_loop
async def test_queue_that_another_makes_at_the_same_time_is_no_loss(
    plain: PlainObjects, position: int
) -> None:
    """Whichever look of the one the other's making comes before, batch and all."""
    queue = Queue(plain)
    original = plain._turn
    turns = 0

    async def turn(operation: str, key: str) -> None:
        nonlocal turns
        turns += 1
        if turns == position + 1:
            plain._turn = original
            producer = await queue.producer()
            await queue.produced(producer, b"other")
            await producer.close()
        await original(operation, key)

    plain._turn = turn
    consumer = await queue.consumer()
    assert entries_of(await everything(consumer)) == [b"other"]
    assert turns > position


@pytest.mark.parametrize("key", [MANIFEST, f"{MANIFEST}.id", "ingest/owner.id"])
@in_loop
async def test_flipped_byte_is_refused_by_everyone(plain: PlainObjects, key: str) -> None:
    """Wherever it is, in the manifest and in what stands beside it."""
    queue = Queue(plain)
    producer = await queue.producer()
    await queue.produced(producer, b"one")
    await producer.close()
    whole = plain.objects[key]
    for at in range(len(whole)):
        plain.write(key, whole[:at] + bytes([whole[at] ^ 0x04]) + whole[at + 1 :])
        for part in (queue.producer, queue.consumer, queue.collector().collect):
            with pytest.raises((FormatError, InvalidSetting)):
                await part()


@in_loop
async def test_manifest_brought_back_goes_on(plain: PlainObjects) -> None:
    """Nothing that was acknowledged before is missing."""
    queue = Queue(plain)
    producer = await queue.producer()
    await queue.produced(producer, b"one")
    kept = plain.objects.pop(MANIFEST)
    with pytest.raises(ManifestLost):
        await queue.consumer()
    plain.write(MANIFEST, kept)
    consumer = await queue.consumer()
    assert entries_of(await everything(consumer)) == [b"one"]
    await producer.close()


@versions
@in_loop
async def test_older_manifest_in_its_place_is_refused(plain: PlainObjects, version: int) -> None:
    """A backup that was brought back: what came after it would be lost."""
    queue = Queue(plain, version=version)
    producer, consumer = await queue.producer(), await queue.consumer()
    backup = plain.objects[MANIFEST]
    await queue.produced(producer, b"one")
    await consumer.next_batch()
    plain.write(MANIFEST, backup)
    with pytest.raises(ManifestLost, match="older"):
        await consumer.next_batch()
    await producer.close()


@in_loop
async def test_manifest_of_another_queue_in_its_place_is_refused(plain: PlainObjects) -> None:
    """Each queue has an id, in the manifest and in the identity."""
    manifest = ManifestObject(plain, QueueSettings())
    loaded = (await manifest.open()).manifest
    plain.write(MANIFEST, encode_manifest(replace(loaded, queue_id=b"X" * 16)))
    with pytest.raises(ManifestLost, match="another queue"):
        await manifest.load()
    with pytest.raises(ManifestLost, match="not that of the queue"):
        await ManifestObject(plain, QueueSettings()).open()


@in_loop
async def test_batches_without_a_manifest_are_no_new_queue(plain: PlainObjects) -> None:
    """Somebody took away manifest and identity, but there was a queue."""
    plain.write("ingest/01J5T4R3KXBMZ7QV9N2WG8YDHP.batch", b"")
    with pytest.raises(ManifestLost, match="batches"):
        await ManifestObject(plain, QueueSettings()).open()


@in_loop
async def test_damaged_identity_is_refused(plain: PlainObjects) -> None:
    """It is the only witness."""
    await ManifestObject(plain, QueueSettings()).open()
    plain.write(f"{MANIFEST}.id", b"{}")
    with pytest.raises(Damaged):
        await ManifestObject(plain, QueueSettings()).open()


@in_loop
async def test_queues_do_not_share_a_prefix(plain: PlainObjects) -> None:
    """Each one's garbage collector would delete the other's batches."""
    await ManifestObject(plain, QueueSettings()).open()
    other = QueueSettings(manifest_path="ingest/other")
    with pytest.raises(InvalidSetting, match="ingest/manifest"):
        await ManifestObject(plain, other).open()
    settings = GarbageSettings(manifest_path="ingest/other")
    with pytest.raises(InvalidSetting):
        await GarbageCollector(plain, settings).collect()
    apart = QueueSettings(manifest_path="ingest/other2", data_path_prefix="ingest/apart")
    await ManifestObject(plain, apart).open()


@in_loop
async def test_reader_does_not_make_a_queue(plain: PlainObjects) -> None:
    """Looking changes nothing."""
    with pytest.raises(ObjectMissing, match="no queue"):
        await ManifestObject(plain, QueueSettings()).open(create=False)
    assert not plain.objects


@in_loop
async def test_unchanged_manifest_is_not_sent_again(plain: PlainObjects) -> None:
    """Polling costs a conditional get and no decoding."""
    manifest = ManifestObject(plain, ConsumerSettings())
    first = await manifest.open()
    assert await manifest.load() is first
