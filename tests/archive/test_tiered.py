"""Rules of the tiered reader: one stream, whatever is where."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.archive.settings import ArchiveSettings
from penstock.archive.tiered import TieredReader
from penstock.model.errors import ArchiveUnavailable, OffsetUnavailable
from penstock.storage.files import LocalFiles
from tests.archive.worlds import World, messages, world
from tests.patience import PATIENCE_S
from tests.servers.loops import in_loop
from tests.simulation.objects import Fault, FaultyObjects, Script

_SMALL = ArchiveSettings(upload_bytes=64 * 1024)


def _reader(it: World, start: int) -> TieredReader:
    return TieredReader(it.catalog, LocalFiles(), it.folder / "log", start)


async def _read(reader: TieredReader, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            if (batch := await reader.read_batch()) is None:
                await asyncio.sleep(0.01)
            else:
                found += enumerate(batch.messages, batch.first_offset)
    return found


@in_loop
async def test_one_stream_from_any_offset(tmp_path: Path) -> None:
    """Archive, then files, then what is appended while it is read: no gap, nothing twice."""
    async with world(tmp_path) as it:
        it.append(3000)
        await (await it.uploader(_SMALL)).drain()
        it.log.enforce_retention()
        it.append(500)
        assert it.log.start_offset > 1000
        for start in (0, 1, it.log.start_offset - 1, it.log.start_offset, 3000, 3499):
            reader = _reader(it, start)
            reading = asyncio.ensure_future(_read(reader, it.log.end_offset + 10 - start))
            await asyncio.sleep(0.01)
            it.append(10)
            assert await reading == messages(start, it.log.end_offset)
            assert reader.lost == []
            reader.close()


@in_loop
async def test_retention_may_overtake_a_reader(tmp_path: Path) -> None:
    """A reader whose log files go away under it goes on in the archive."""
    async with world(tmp_path) as it:
        it.append(3000)
        reader = _reader(it, 0)
        first = await reader.read_batch()
        assert first is not None
        found = list(enumerate(first.messages, first.first_offset))
        await (await it.uploader(_SMALL)).drain()
        it.log.enforce_retention()
        while (batch := await reader.read_batch()) is not None:
            found += enumerate(batch.messages, batch.first_offset)
        assert found == messages(0, 3000)
        assert it.log.start_offset > 1000


@in_loop
async def test_an_archive_that_is_away_is_named(tmp_path: Path) -> None:
    """The error says which offsets are missing; the same reader goes on later."""
    async with world(tmp_path) as it:
        it.append(3000)
        await (await it.uploader()).drain()
        it.log.enforce_retention()
        it.objects = FaultyObjects(it.objects, Script([Fault.FAIL_BEFORE]))
        reader = _reader(it, 7)
        with pytest.raises(ArchiveUnavailable, match="offsets 7 to 2999"):
            await reader.read_batch()
        assert await _read(reader, 2993) == messages(7, 3000)


@in_loop
async def test_what_nobody_has_is_an_error(tmp_path: Path) -> None:
    """Between the end of the archive and the beginning of the log nothing is made up."""
    async with world(tmp_path) as it:
        it.append(3000)
        await (await it.uploader(_SMALL)).drain()
        it.log.enforce_retention()
        start = it.log.start_offset
        for one in (await it.catalog.all())[1:]:
            await it.metadata.delete(it.catalog.descriptor_key(one.start_offset))
        reader = _reader(it, 0)
        with pytest.raises(OffsetUnavailable, match=f"begins at {start}"):
            await _read(reader, 3000)


@in_loop
async def test_an_archive_alone_can_be_read(tmp_path: Path) -> None:
    """Without a log the stream ends with the archive."""
    async with world(tmp_path) as it:
        it.append(100)
        await (await it.uploader()).drain()
        reader = TieredReader(it.catalog, LocalFiles(), tmp_path / "none", 40)
        batch = await reader.read_batch()
        assert batch is not None
        assert batch.first_offset == 40
        assert await reader.read_batch() is None
