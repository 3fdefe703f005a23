"""Full tails become chunks: entries are found again, and the manifest stays small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import Damaged, ObjectChanged, ObjectsUnavailable
from penstock.queue import QueueSettings
from penstock.queue.changes import NewEntry, appended, dequeued
from penstock.queue.chunks import roll
from penstock.queue.entries import Entries
from penstock.queue.entry import encode_body
from penstock.queue.format import MAX_WRITERS, Manifest, decode_manifest, encode_manifest
from penstock.queue.keys import batch_key, chunk_key
from penstock.queue.manifest import ManifestObject
from tests.queue.helpers import MANIFEST, Queue, entries_of, everything
from tests.queue.plain_objects import PlainObjects
from tests.servers.loops import in_loop

if TYPE_CHECKING:
    from penstock.queue.entry import Entry

EMPTY = Manifest(version=2, epoch=0, next_sequence=0, first_sequence=0, queue_id=b"Q" * 16)


def new_entry(number: int) -> NewEntry:
    """An entry whose name is its number."""
    batch_id = number.to_bytes(16, "big")
    location = batch_key("ingest", batch_id)
    return NewEntry(batch_id, location, encode_body(location, ()), 10, 1, number % 2**32)


def with_entries(manifest: Manifest, count: int) -> Manifest:
    """With so many more entries."""
    first = manifest.next_sequence
    entries = [new_entry(number) for number in range(first, first + count)]
    return appended(manifest, entries, b"W" * 16, 1)


async def rolled_often(plain: PlainObjects, *counts: int) -> Manifest:
    """A chunk of each count, and three entries in the tail."""
    manifest = EMPTY
    for count in counts:
        manifest = await roll(plain, MANIFEST, with_entries(manifest, count))
    return with_entries(manifest, 3)


def sequences(entries: list[Entry]) -> list[int]:
    """Their sequences, once it is clear that each is what was appended."""
    assert all(entry.extent.batch_crc == entry.sequence for entry in entries)
    return [entry.sequence for entry in entries]


# --- finding -----------------------------------------------------------------------------------


@in_loop
async def test_every_sequence_is_found(plain: PlainObjects) -> None:
    """In chunks of any length, and in the tail, from anywhere on."""
    manifest = await rolled_often(plain, 1, 5, 2, 7, 1)
    for begin in range(19):
        entries = Entries(plain, MANIFEST)
        assert sequences(await entries.read(manifest, begin, 100)) == list(range(begin, 19))
        assert sequences(await entries.read(manifest, begin, 1)) == [begin]
    assert await Entries(plain, MANIFEST).read(manifest, 19, 5) == []


@in_loop
async def test_chunk_is_found_with_few_looks(plain: PlainObjects) -> None:
    """By halves, and one after the other without looking at all."""
    manifest = await rolled_often(plain, *[3] * 100)
    entries = Entries(plain, MANIFEST)
    plain.calls.clear()
    assert sequences(await entries.read(manifest, 200, 3)) == [200, 201, 202]
    assert len(plain.calls) <= 10
    plain.calls.clear()
    assert sequences(await entries.read(manifest, 203, 30)) == list(range(203, 233))
    assert [call for call, _ in plain.calls] == ["get"] * 10


@in_loop
async def test_missing_damaged_or_foreign_chunk_is_damage(plain: PlainObjects) -> None:
    """It is named, and nothing is left out silently."""
    manifest = await rolled_often(plain, 3, 3, 3)
    key, other = chunk_key(MANIFEST, 1), chunk_key(MANIFEST, 2)
    whole = plain.objects[key]
    for wrong in (whole[:30], whole[:-1], whole[:90] + b"?" + whole[91:], plain.objects[other]):
        plain.write(key, wrong)
        with pytest.raises(Damaged, match="0001"):
            await Entries(plain, MANIFEST).read(manifest, 0, 9)
    plain.objects.pop(key)
    with pytest.raises(Damaged, match="missing"):
        await Entries(plain, MANIFEST).read(manifest, 0, 9)


# --- rolling -----------------------------------------------------------------------------------


@in_loop
async def test_chunk_that_is_there_is_taken_as_it_is(plain: PlainObjects) -> None:
    """Its maker died before the manifest said so, and the tail has grown since."""
    before = with_entries(EMPTY, 3)
    await roll(plain, MANIFEST, before)
    after = await roll(plain, MANIFEST, with_entries(before, 2))
    assert (after.next_chunk, after.tail_count, after.tail_first) == (1, 2, 3)
    assert sequences(await Entries(plain, MANIFEST).read(after, 0, 9)) == [0, 1, 2, 3, 4]


@in_loop
async def test_chunk_of_what_was_dequeued_is_passed_over(plain: PlainObjects) -> None:
    """Its maker was stopped until nobody needed it any more."""
    before = with_entries(EMPTY, 3)
    await roll(plain, MANIFEST, before)
    later = with_entries(dequeued(before, 2, 30, 0), 4)
    after = await roll(plain, MANIFEST, later)
    assert (after.first_chunk, after.next_chunk, after.tail_count) == (1, 1, 4)
    again = await roll(plain, MANIFEST, after)
    assert sequences(await Entries(plain, MANIFEST).read(again, 3, 9)) == [3, 4, 5, 6]


@in_loop
async def test_partly_dequeued_chunk_is_taken_as_it_is(plain: PlainObjects) -> None:
    """What was dequeued since is in it, and is never asked for."""
    before = with_entries(EMPTY, 5)
    await roll(plain, MANIFEST, before)
    after = await roll(plain, MANIFEST, with_entries(dequeued(before, 2, 30, 0), 2))
    assert (after.first_chunk, after.next_chunk, after.tail_first) == (0, 1, 5)
    assert sequences(await Entries(plain, MANIFEST).read(after, 3, 9)) == [3, 4, 5, 6]


@in_loop
async def test_damaged_chunk_that_nobody_relies_on_is_replaced(plain: PlainObjects) -> None:
    """It would otherwise stop every append."""
    manifest = with_entries(EMPTY, 3)
    plain.write(chunk_key(MANIFEST, 0), b"half a chunk")
    after = await roll(plain, MANIFEST, manifest)
    assert sequences(await Entries(plain, MANIFEST).read(after, 0, 9)) == [0, 1, 2]


@in_loop
async def test_chunk_that_vanishes_means_that_the_manifest_moved_on(plain: PlainObjects) -> None:
    """Then the append reads it again."""
    manifest = with_entries(EMPTY, 3)
    plain.write(chunk_key(MANIFEST, 0), b"")

    async def gone(key: str, **_: object) -> None:
        plain.objects.pop(key)
        return await PlainObjects.get(plain, key)

    plain.get = gone
    with pytest.raises(ObjectChanged):
        await roll(plain, MANIFEST, manifest)


# --- growth ------------------------------------------------------------------------------------


@in_loop
async def test_manifest_stays_small_however_much_waits(plain: PlainObjects) -> None:
    """The object that every append replaces does not grow with what waits."""
    queue = Queue(plain)
    producer = await queue.producer(tail_bytes=1000, flush_size_bytes=0, max_uploads=50)
    sizes = []
    for number in range(300):
        await queue.produced(producer, b"%03d" % number)
        sizes.append(len(plain.objects[MANIFEST]))
    assert max(sizes[100:]) <= max(sizes[:100])
    found = entries_of(await everything(await queue.consumer()))
    assert found == [b"%03d" % number for number in range(300)]
    await producer.close()


@in_loop
async def test_consumer_that_keeps_up_leaves_no_chunks(plain: PlainObjects) -> None:
    """The tail is cut by what is dequeued before it is full."""
    queue = Queue(plain)
    producer, consumer = (
        await queue.producer(tail_bytes=500),
        await queue.consumer(acks_per_dequeue=2),
    )
    for number in range(30):
        await queue.produced(producer, b"%d" % number)
        batch = await consumer.next_batch()
        assert batch is not None
        await consumer.ack(batch.sequence)
    assert decode_manifest(plain.objects[MANIFEST]).next_chunk == 0
    await producer.close()


def test_remembered_writers_are_bounded() -> None:
    """The one that was silent longest is forgotten, so that the manifest stays small."""
    manifest = EMPTY
    for number in range(MAX_WRITERS + 5):
        manifest = appended(manifest, [new_entry(0)], number.to_bytes(16, "big"), number)
    kept = [writer.append_no for writer in manifest.writers]
    assert kept == list(range(5, MAX_WRITERS + 5))
    manifest = appended(manifest, [new_entry(0)], (7).to_bytes(16, "big"), 99)
    assert [writer.append_no for writer in manifest.writers][-1] == 99
    assert len(manifest.writers) == MAX_WRITERS


@in_loop
async def test_lost_answer_of_a_forgotten_writer_is_found_by_its_entries(
    plain: PlainObjects,
) -> None:
    """More producers than are remembered appended since; the entry is in a chunk by then."""
    queue = Queue(plain)
    producer = await queue.producer(tail_bytes=100)
    original = plain.replace

    async def loses_the_answer(key: str, data: bytes, expected: object) -> object:
        plain.replace = original
        await original(key, data, expected)
        loaded = await ManifestObject(plain, QueueSettings()).open()
        manifest = loaded.manifest
        for number in range(MAX_WRITERS + 1):
            writer = number.to_bytes(16, "big")
            manifest = appended(manifest, [new_entry(2**100 + number)], writer, 1)
            manifest = await roll(plain, MANIFEST, manifest)
        plain.write(MANIFEST, encode_manifest(manifest))
        raise ObjectsUnavailable("the answer is lost")

    plain.replace = loses_the_answer
    assert await queue.produced(producer, b"mine") == [0]
    manifest = decode_manifest(plain.objects[MANIFEST])
    assert manifest.next_sequence == MAX_WRITERS + 2
    await producer.close()


# --- dequeuing ---------------------------------------------------------------------------------


@given(st.integers(0, 20), st.integers(0, 19))
def test_dequeued_tail_keeps_what_is_behind(count: int, through: int) -> None:
    """With its bytes untouched."""
    manifest = with_entries(EMPTY, count)
    if through >= count:
        return
    after = dequeued(manifest, through, 10 * (through + 1), 0)
    assert decode_manifest(encode_manifest(after)) == after
    assert (after.tail_first, after.tail_count) == (through + 1, count - through - 1)
    assert manifest.tail.endswith(after.tail)
