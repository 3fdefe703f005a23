"""Rules of the uploader: what it uploads, when, and what it never does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.archive.settings import ArchiveSettings
from penstock.archive.sources import OpenLog
from penstock.archive.uploader import CHECKPOINT_NAME
from penstock.log import Log
from penstock.model.errors import ArchiveConflict, Fenced, InvalidSetting, ObjectsUnavailable
from penstock.storage.objects import Upload, open_objects
from tests.archive.worlds import SMALL_FILES, messages, world
from tests.servers.loops import in_loop
from tests.simulation.objects import FaultyObjects, Script

if TYPE_CHECKING:
    from tests.servers.seaweed import S3Server

_SMALL = ArchiveSettings(upload_bytes=64 * 1024)


@pytest.mark.parametrize("compression", [False, True])
@in_loop
async def test_what_was_uploaded_is_read(tmp_path: Path, compression: bool) -> None:
    """Every message of several files, from every offset."""
    async with world(tmp_path) as it:
        it.append(3000)
        uploader = await it.uploader(ArchiveSettings(compression=compression))
        assert await uploader.drain() == 1
        assert await it.archived() == messages(0, 3000)
        for offset in (1, 999, 1000, 1001, 2999):
            assert await it.archived(offset) == messages(offset, 3000)
        assert await it.archived(3000) == []


@in_loop
async def test_descriptors_say_what_is_in_an_object(tmp_path: Path) -> None:
    """The documented fields, under the documented key."""
    async with world(tmp_path) as it:
        it.append(2500)
        uploader = await it.uploader()
        await uploader.drain()
        (entry,) = await it.metadata.range("penstock/storage/topics/default/traces/objects/")
        assert entry.key.endswith("/objects/00000000000000000000")
        found = json.loads(entry.data)
        name = "e0000000001/data-00000000000000000000-00000000000000002500.frames"
        assert (found["object_id"], found["start_offset"], found["end_offset"]) == (name, 0, 2500)
        assert (found["completed"], found["messages"], found["lost"]) == (True, 2500, [])
        assert [offset for offset, _ in found["offset_index"]] == [0, 1000, 2000]
        info = await it.objects.head(entry.key[:-20] + name)
        assert (info.size, info.version.etag) == (found["size"], found["etag"])


@in_loop
async def test_objects_end_with_a_file_once_they_are_large_enough(tmp_path: Path) -> None:
    """Many files waiting become several objects, one behind the other."""
    async with world(tmp_path) as it:
        it.append(4000)
        files = {0} | {file.end_offset for file in it.log.sealed_files}
        uploader = await it.uploader(_SMALL)
        await uploader.drain()
        found = await it.catalog.all()
        assert len(found) > 1
        assert {one.start_offset for one in found} <= files
        assert [one.end_offset for one in found] == [*[one.start_offset for one in found][1:], 4000]
        assert await it.archived() == messages(0, 4000)


@in_loop
async def test_an_upload_is_due_by_bytes_and_by_time(tmp_path: Path) -> None:
    """Few messages wait for the interval, many do not."""
    async with world(tmp_path) as it:
        uploader = await it.uploader(ArchiveSettings(upload_bytes=5000, upload_interval_s=60.0))
        assert await uploader.upload_once() is None
        assert not uploader.is_due()
        it.append(1)
        assert not uploader.is_due()
        it.clock.now += 14.0
        assert not uploader.is_due()
        it.clock.now += 46.0
        assert uploader.is_due()


@in_loop
async def test_many_bytes_are_due_at_once(tmp_path: Path) -> None:
    """The bytes of the file that is being written count too, once each."""
    async with world(tmp_path) as it:
        uploader = await it.uploader(ArchiveSettings(upload_bytes=20_000))
        it.append(300)
        assert uploader.is_due()
        await uploader.upload_once()
        assert not uploader.is_due()
        it.append(10)
        assert not uploader.is_due()
        it.append(300)
        assert uploader.is_due()


@in_loop
async def test_the_log_forgets_only_what_is_archived(tmp_path: Path) -> None:
    """The floor follows the descriptor, not the upload."""
    async with world(tmp_path) as it:
        it.append(3000)
        it.log.enforce_retention()
        assert it.log.start_offset == 0
        uploader = await it.uploader(_SMALL)
        first = await uploader.upload_once()
        assert first is not None
        it.log.enforce_retention()
        assert 0 < it.log.start_offset <= first.end_offset
        await uploader.drain()
        it.log.enforce_retention()
        assert it.log.start_offset > first.end_offset
        assert await it.archived() == messages(0, 3000)


@in_loop
async def test_a_later_uploader_goes_on(tmp_path: Path) -> None:
    """After a restart only what is new is uploaded, in a new epoch."""
    async with world(tmp_path) as it:
        it.append(100)
        await (await it.uploader()).drain()
        it.append(50)
        again = await it.uploader()
        assert await again.drain() == 1
        assert [(one.start_offset, one.end_offset) for one in await it.catalog.all()] == [
            (0, 100),
            (100, 150),
        ]
        assert [name[:11] for name in await it.object_ids()] == ["e0000000001", "e0000000002"]
        assert await it.archived() == messages(0, 150)


@pytest.mark.parametrize("damage", ["missing", "nonsense"])
@in_loop
async def test_a_lost_checkpoint_costs_nothing_but_time(tmp_path: Path, damage: str) -> None:
    """The descriptors say where to go on."""
    async with world(tmp_path) as it:
        it.append(100)
        await (await it.uploader()).drain()
        checkpoint = it.folder / CHECKPOINT_NAME
        assert json.loads(checkpoint.read_bytes())["offset"] == 100
        checkpoint.unlink() if damage == "missing" else checkpoint.write_bytes(b"{}")
        it.append(50)
        assert await (await it.uploader()).drain() == 1
        assert await it.archived() == messages(0, 150)


@in_loop
async def test_a_fenced_owner_adds_nothing(tmp_path: Path) -> None:
    """What it had uploaded stays without a descriptor, and its successor removes it."""
    async with world(tmp_path) as it:
        it.append(100)
        first = await it.uploader()
        await first.upload_once()
        second = await it.uploader()
        it.append(100)
        with pytest.raises(Fenced):
            await first.upload_once()
        assert await it.catalog.end_offset() == 100
        assert len(await it.object_ids()) == 2
        await second.tidy()
        assert len(await it.object_ids()) == 1
        await second.drain()
        assert await it.archived() == messages(0, 200)


@in_loop
async def test_a_strange_log_is_refused(tmp_path: Path) -> None:
    """A log that holds other messages for archived offsets uploads nothing."""
    async with world(tmp_path / "a") as it:
        it.append(100)
        await (await it.uploader()).drain()
        async with world(tmp_path / "b", it.objects, it.metadata) as other:
            other.append(200)
            with pytest.raises(ArchiveConflict, match="with others"):
                await (await other.uploader()).drain()


@in_loop
async def test_a_log_that_fell_behind_is_refused(tmp_path: Path) -> None:
    """A log that would give out archived offsets again is no log to go on with."""
    async with world(tmp_path) as it:
        it.append(50)
        it.log.close()
        shutil.copytree(it.folder, tmp_path / "copy")
        it.log = it.open_log()
        it.append(50)
        await (await it.uploader()).drain()
        it.log.close()
        shutil.rmtree(it.folder)
        (tmp_path / "copy").rename(it.folder)
        it.log = it.open_log()
        with pytest.raises(ArchiveConflict, match="a second time"):
            await (await it.uploader()).drain()


@in_loop
async def test_objects_without_metadata_are_not_taken_for_abandoned(tmp_path: Path) -> None:
    """With another metadata store nothing is uploaded and nothing removed."""
    async with world(tmp_path / "a") as it:
        it.append(100)
        await (await it.uploader()).drain()
        async with world(tmp_path / "b", it.objects) as other:
            other.append(10)
            with pytest.raises(ArchiveConflict, match="with others"):
                await (await other.uploader()).drain()
        assert len(await it.object_ids()) == 1


@in_loop
async def test_what_left_the_log_unarchived_is_lost_and_named(tmp_path: Path) -> None:
    """The archive goes on with what is there; the descriptor says what is not."""
    async with world(tmp_path) as it:
        it.append(100)
        uploader = await it.uploader()
        await uploader.drain()
        it.append(3000)
        for file in it.log.sealed_files[:2]:
            file.path.unlink()
        start = it.log.sealed_files[1].end_offset
        await uploader.drain()
        assert (await it.catalog.all())[1].lost == ((100, start),)
        assert await it.archived() == messages(0, 100) + messages(start, 3100)


@in_loop
async def test_messages_that_are_not_synced_are_not_archived(tmp_path: Path) -> None:
    """What a power loss could take back is left to a later upload."""
    settings = replace(SMALL_FILES, durability="buffer")
    with Log.open(tmp_path / "log", settings) as log:
        log.append(b"written")
        log.flush()
        assert log.end_offset == 1
        assert OpenLog(log).end_offset() == 0
        log.roll()
        log.append(b"next")
        log.flush()
        assert OpenLog(log).end_offset() == 1


@pytest.mark.parametrize(
    "wrong", [{"upload_bytes": 0}, {"upload_interval_s": 0}, {"retention_s": -1}]
)
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    """InvalidSetting names the setting."""
    with pytest.raises(InvalidSetting, match=next(iter(wrong))):
        ArchiveSettings(**wrong)


@pytest.mark.parametrize("kind", ["s3", "file"])
@in_loop
async def test_an_upload_needs_little_memory(tmp_path: Path, s3: S3Server, kind: str) -> None:
    """However large the object is, a few parts of it are held at a time."""
    place = s3.place() if kind == "s3" else f"file://{tmp_path}/objects"
    options = s3.options if kind == "s3" else None
    async with world(tmp_path, open_objects(place, options)) as it:
        it.append(80, lambda offset: bytes([offset]) * 500_000)
        uploader = await it.uploader(ArchiveSettings())
        await uploader.drain()  # so that everything is imported
        it.append(80, lambda offset: bytes([offset]) * 500_000)
        tracemalloc.start()
        try:
            await uploader.upload_once()
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (await it.catalog.all())[-1].size > 40_000_000
        assert peak_bytes < 28_000_000


@in_loop
async def test_a_cancelled_upload_leaves_nothing(tmp_path: Path) -> None:
    """Cancelled at any moment it shows no object, and the next attempt is whole."""
    async with world(tmp_path) as it:
        it.append(3000)
        uploader = await it.uploader()
        for turns in range(0, 60, 3):
            uploading = asyncio.ensure_future(uploader.upload_once())
            for _ in range(turns):
                await asyncio.sleep(0)
            uploading.cancel()
            await asyncio.gather(uploading, return_exceptions=True)
        await uploader.drain()
        await uploader.tidy()
        assert await it.archived() == messages(0, 3000)
        assert len(await it.object_ids()) == len(await it.catalog.all())


class _CutsUploads(FaultyObjects):
    """A store that says it has the whole object, and has not."""

    @contextlib.asynccontextmanager
    async def upload(self, key: str) -> AsyncIterator[Upload]:
        """Keeps the first half."""
        async with super().upload(key) as upload:
            yield upload
        found = await self.get(key)
        assert found is not None
        await self.put(key, found.data[: len(found.data) // 2])


@in_loop
async def test_an_object_that_did_not_arrive_whole_is_not_described(tmp_path: Path) -> None:
    """The log keeps what is in it, and it is uploaded again."""
    async with world(tmp_path) as it:
        it.append(3000)
        objects, it.objects = it.objects, _CutsUploads(it.objects, Script())
        with pytest.raises(ObjectsUnavailable, match="not the"):
            await (await it.uploader()).drain()
        assert await it.catalog.all() == []
        it.log.enforce_retention()
        assert it.log.start_offset == 0
        it.objects = objects
        await (await it.uploader()).drain()
        assert await it.archived() == messages(0, 3000)
