"""Rules of rebuilding: the objects alone make the archive again."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from penstock.archive.rebuild import choose, rebuild_descriptors
from penstock.archive.settings import ArchiveSettings
from penstock.cli.app import cli
from penstock.model.errors import ArchiveConflict
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from tests.archive.test_format import _DESCRIPTOR
from tests.archive.worlds import World, messages, world
from tests.servers.loops import in_loop

if TYPE_CHECKING:
    from penstock.archive.uploader import Uploader

_SMALL = ArchiveSettings(upload_bytes=64 * 1024)


async def _archived(it: World, count: int, settings: ArchiveSettings = _SMALL) -> Uploader:
    it.append(count)
    uploader = await it.uploader(settings)
    await uploader.drain()
    return uploader


@pytest.mark.parametrize("compression", [False, True])
@in_loop
async def test_descriptors_are_the_same_as_before(tmp_path: Path, compression: bool) -> None:
    """All but the time, and the log goes on with them."""
    async with world(tmp_path) as it:
        await _archived(it, 4000, replace(_SMALL, compression=compression))
        before = await it.catalog.all()
        lost, it.metadata = it.metadata, open_metadata(f"file://{tmp_path}/new.db")
        made, left = await rebuild_descriptors(it.catalog, await it.lease())
        assert left == []
        assert [replace(one, created_at="") for one in made] == [
            replace(one, created_at="") for one in before
        ]
        assert await it.catalog.all() == made
        await _archived(it, 10)
        assert await it.archived() == messages(0, 4010)
        await it.metadata.close()
        it.metadata = lost


@in_loop
async def test_an_archive_that_is_described_is_left_alone(tmp_path: Path) -> None:
    """So is a place without an archive."""
    async with world(tmp_path) as it:
        assert await rebuild_descriptors(it.catalog, await it.lease()) == ([], [])
        await _archived(it, 10)
        with pytest.raises(ArchiveConflict, match="has descriptors"):
            await rebuild_descriptors(it.catalog, await it.lease())


@in_loop
async def test_damaged_objects_are_named(tmp_path: Path) -> None:
    """The others are described."""
    async with world(tmp_path) as it:
        await _archived(it, 4000)
        before = await it.catalog.all()
        key = it.catalog.object_key(before[1].object_id)
        found = await it.objects.get(key)
        assert found is not None
        await it.objects.put(key, found.data[:-5])
        lost, it.metadata = it.metadata, open_metadata(f"file://{tmp_path}/new.db")
        made, left = await rebuild_descriptors(it.catalog, await it.lease())
        assert left == [before[1].object_id]
        assert len(made) == len(before) - 1
        await it.metadata.close()
        it.metadata = lost


def test_later_attempts_are_chosen() -> None:
    """The latest epoch, then the longest; what it covers is left out."""
    objects = [(1, 0, 10), (1, 10, 30), (2, 10, 20), (2, 10, 15), (1, 15, 18)]
    objects += [(2, 20, 40), (3, 50, 60)]
    made = [
        replace(_DESCRIPTOR, epoch=epoch, start_offset=start, end_offset=end)
        for epoch, start, end in objects
    ]
    chosen = [(found.epoch, found.start_offset, found.end_offset) for found in choose(made)]
    assert chosen == [(1, 0, 10), (2, 10, 20), (2, 20, 40), (3, 50, 60)]


@in_loop
async def test_the_command_says_what_it_found(tmp_path: Path) -> None:
    """A new metadata file is filled from the objects."""
    async with world(tmp_path, open_objects(f"file://{tmp_path}/objects")) as it:
        await _archived(it, 100)
    where = [f"--objects=file://{tmp_path}/objects", f"--metadata=file://{tmp_path}/new.db"]
    done = await asyncio.to_thread(
        CliRunner().invoke, cli, ["archive", "rebuild", "--json", "/default/traces", *where]
    )
    assert json.loads(done.stdout) == {
        "topic": "/default/traces",
        "objects": 1,
        "end_offset": 100,
        "left": [],
    }
