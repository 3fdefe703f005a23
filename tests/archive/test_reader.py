"""Rules of reading the archive: every offset, every kind of damage, every kind of absence."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.archive.reader import ArchiveReader, read_object
from penstock.archive.settings import ArchiveSettings
from penstock.model.errors import ArchiveUnavailable, Damaged, OffsetUnavailable
from tests.archive.worlds import World, drained, message, messages, world
from tests.servers.loops import in_loop
from tests.simulation.objects import Fault, FaultyObjects, Script

_SMALL = ArchiveSettings(upload_bytes=64 * 1024)


async def _archived(it: World, count: int, settings: ArchiveSettings | None = None) -> None:
    it.append(count)
    await (await it.uploader(settings)).drain()


async def _overwrite(it: World, position: int, data: bytes) -> None:
    (descriptor,) = await it.catalog.all()
    key = it.catalog.object_key(descriptor.object_id)
    found = await it.objects.get(key)
    assert found is not None
    await it.objects.put(key, found.data[:position] + data + found.data[position + len(data) :])


@pytest.mark.parametrize("compression", [False, True])
@in_loop
async def test_a_damaged_block_is_passed_over_and_named(tmp_path: Path, compression: bool) -> None:
    """One flipped byte costs its block, and every message before and behind is read."""
    async with world(tmp_path) as it:
        await _archived(it, 3000, ArchiveSettings(compression=compression))
        (descriptor,) = await it.catalog.all()
        await _overwrite(it, descriptor.offset_index[1][1] + 100, b"\xee\xdd")
        reader = ArchiveReader(it.catalog, 500)
        assert await drained(reader) == messages(500, 1000) + messages(2000, 3000)
        (lost,) = reader.lost
        assert (lost.first_offset, lost.end_offset, lost.file) == (
            1000,
            2000,
            descriptor.object_id,
        )


@in_loop
async def test_a_damaged_head_of_a_block_does_not_hide_the_next(tmp_path: Path) -> None:
    """The index says where the next block begins."""
    async with world(tmp_path) as it:
        await _archived(it, 3000)
        (descriptor,) = await it.catalog.all()
        await _overwrite(it, descriptor.offset_index[0][1] + 12, b"\xff\xff\xff\x7f")
        reader = ArchiveReader(it.catalog, 0)
        assert await drained(reader) == messages(1000, 3000)
        assert [(lost.first_offset, lost.end_offset) for lost in reader.lost] == [(0, 1000)]


@in_loop
async def test_a_missing_object_is_lost_as_a_whole(tmp_path: Path) -> None:
    """The objects before and behind it are read."""
    async with world(tmp_path) as it:
        await _archived(it, 4000, _SMALL)
        gone = (await it.catalog.all())[1]
        await it.objects.delete(it.catalog.object_key(gone.object_id))
        reader = ArchiveReader(it.catalog, 0)
        found = await drained(reader)
        assert found == messages(0, gone.start_offset) + messages(gone.end_offset, 4000)
        assert [(lost.first_offset, lost.end_offset) for lost in reader.lost] == [
            (gone.start_offset, gone.end_offset)
        ]


@in_loop
async def test_a_truncated_object_loses_its_end(tmp_path: Path) -> None:
    """What is left of it is read."""
    async with world(tmp_path) as it:
        await _archived(it, 3000)
        (descriptor,) = await it.catalog.all()
        key = it.catalog.object_key(descriptor.object_id)
        found = await it.objects.get(key)
        assert found is not None
        await it.objects.put(key, found.data[: descriptor.offset_index[2][1] + 10])
        reader = ArchiveReader(it.catalog, 0)
        assert await drained(reader) == messages(0, 2000)
        assert [(lost.first_offset, lost.end_offset) for lost in reader.lost] == [(2000, 3000)]


@in_loop
async def test_a_read_that_is_cut_is_made_again(tmp_path: Path) -> None:
    """Fewer bytes than asked for are no damage."""
    async with world(tmp_path) as it:
        await _archived(it, 3000)
        it.objects = FaultyObjects(it.objects, Script([Fault.TRUNCATE]))
        reader = ArchiveReader(it.catalog, 100)
        assert await drained(reader) == messages(100, 3000)
        assert reader.lost == []


@in_loop
async def test_a_read_that_fails_says_what_is_missing(tmp_path: Path) -> None:
    """The error names the offsets, and reading on later goes on behind what came."""
    async with world(tmp_path) as it:
        await _archived(it, 3000)
        it.objects = FaultyObjects(it.objects, Script([Fault.FAIL_AFTER]))
        reader = ArchiveReader(it.catalog, 100)
        with pytest.raises(ArchiveUnavailable) as missing:
            await drained(reader)
        stopped_at = reader.position
        assert (missing.value.earliest, missing.value.end) == (stopped_at, 3000)
        assert await drained(reader) == messages(stopped_at, 3000)
        assert reader.lost == []


@in_loop
async def test_a_whole_object_that_never_comes_whole_is_not_lost(tmp_path: Path) -> None:
    """It is unavailable, and read when the store has come to its senses."""
    async with world(tmp_path) as it:
        await _archived(it, 100)
        inner = it.objects
        it.objects = FaultyObjects(inner, Script([Fault.TRUNCATE] * 3))
        reader = ArchiveReader(it.catalog, 0)
        with pytest.raises(ArchiveUnavailable, match="offsets 0 to 99"):
            await reader.read_batch()
        assert await drained(reader) == messages(0, 100)


@in_loop
async def test_what_retention_removed_is_unavailable(tmp_path: Path) -> None:
    """The error says where the archive begins."""
    async with world(tmp_path) as it:
        await _archived(it, 4000, _SMALL)
        first = (await it.catalog.all())[0]
        await it.metadata.delete(it.catalog.descriptor_key(0))
        with pytest.raises(OffsetUnavailable) as error:
            await ArchiveReader(it.catalog, 5).read_batch()
        assert (error.value.earliest, error.value.end) == (first.end_offset, 4000)


@in_loop
async def test_what_the_log_had_lost_is_lost_in_the_archive(tmp_path: Path) -> None:
    """A damaged frame of the log is named by the descriptor and by every reader."""
    async with world(tmp_path) as it:
        it.append(10)
        it.log.roll()
        it.append(10)
        path = it.log.sealed_files[0].path
        data = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(data.replace(message(4), b"m" + b"?" * (len(message(4)) - 1)))
        await (await it.uploader()).drain()
        (descriptor,) = await it.catalog.all()
        assert descriptor.lost == ((4, 5),)
        reader = ArchiveReader(it.catalog, 0)
        assert await drained(reader) == messages(0, 4) + messages(5, 20)
        assert [(lost.first_offset, lost.end_offset) for lost in reader.lost] == [(4, 5)]


@in_loop
async def test_objects_can_be_read_one_by_one(tmp_path: Path) -> None:
    """`read_object` gives the messages of one object, and an error where it is damaged."""
    async with world(tmp_path) as it:
        await _archived(it, 3000)
        (descriptor,) = await it.catalog.all()
        batches = [batch async for batch in read_object(it.catalog, descriptor)]
        assert [batch.first_offset for batch in batches] == [0, 1000, 2000]
        await _overwrite(it, descriptor.offset_index[1][1] + 100, b"\xee\xdd")
        with pytest.raises(Damaged, match="offset 1000"):
            [batch async for batch in read_object(it.catalog, descriptor)]
