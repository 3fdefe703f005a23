"""Rules of the local folder alone: what other processes and a crash may see."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.model.errors import InvalidArgument, ObjectChanged, ObjectsUnavailable
from penstock.storage.files import LocalFiles
from penstock.storage.objects import open_objects
from penstock.storage.objects.folder import FolderObjects
from tests.servers.loops import in_loop

_COUNT_UP = """
import asyncio, sys
from penstock.model.errors import ObjectChanged
from penstock.storage.objects import open_objects

async def main():
    store, steps = open_objects(sys.argv[1]), int(sys.argv[2])
    while steps:
        found = await store.get("count")
        try:
            await store.replace("count", b"%d" % (int(found.data) + 1), found.info.version)
        except ObjectChanged:
            continue
        steps -= 1

asyncio.run(main())
"""


def test_swaps_of_many_processes_lose_nothing(tmp_path: Path) -> None:
    """Four processes count up by compare-and-swap; every step counts."""
    url = f"file://{tmp_path}/objects"
    asyncio.run(open_objects(url).create("count", b"0"))
    command = [sys.executable, "-c", _COUNT_UP, url, "25"]
    counters = [subprocess.Popen(command) for _ in range(4)]
    assert [counter.wait() for counter in counters] == [0, 0, 0, 0]
    found = asyncio.run(open_objects(url).get("count"))
    assert found is not None
    assert found.data == b"100"


@in_loop
async def test_equal_contents_are_different_versions(tmp_path: Path) -> None:
    """A version never comes back, though bytes, size and inode may."""
    store = FolderObjects(tmp_path)
    versions = [await store.put("key", b"same") for _ in range(50)]
    assert len(set(versions)) == 50
    with pytest.raises(ObjectChanged):
        await store.replace("key", b"x", versions[0])


@in_loop
async def test_files_aside_are_never_listed(tmp_path: Path) -> None:
    """While an upload is under way the folder lists nothing, and afterwards one object."""
    store = FolderObjects(tmp_path)
    async with store.upload("a/b") as upload:
        await upload.write(b"half")
        assert [info async for info in store.list("")] == []
        assert [info async for info in store.list(".")] == []
    assert [info.key async for info in store.list("")] == ["a/b"]


@in_loop
async def test_keys_are_listed_in_the_order_of_text(tmp_path: Path) -> None:
    """A folder stands where its slash puts it, not where its name would."""
    store = FolderObjects(tmp_path)
    for key in ("a/b", "a-b", "a.b", "aa"):
        await store.put(key, b"")
    assert [info.key async for info in store.list("")] == ["a-b", "a.b", "a/b", "aa"]
    assert [info.key async for info in store.list("", after="a.b")] == ["a/b", "aa"]


@in_loop
async def test_a_key_is_not_a_folder_too(tmp_path: Path) -> None:
    """What a file system cannot hold is refused with a clear error."""
    store = FolderObjects(tmp_path)
    await store.put("a/b", b"")
    for key in ("a", "a/b/c"):
        with pytest.raises(InvalidArgument, match="cannot be an object here"):
            await store.put(key, b"")
        with pytest.raises(InvalidArgument, match="cannot be an object here"):
            await store.create(key, b"")


@in_loop
async def test_what_dead_writers_left_is_removed_after_a_day(tmp_path: Path) -> None:
    """Opening the store removes old files aside and leaves young ones."""
    aside = tmp_path / ".penstock" / "tmp"
    aside.mkdir(parents=True)
    for name, age_s in (("old", 90_000), ("young", 80_000)):
        (aside / name).write_bytes(b"half")
        now = (aside / name).stat().st_mtime
        os.utime(aside / name, (now - age_s, now - age_s))
    open_objects(f"file://{tmp_path}")
    assert [path.name for path in aside.iterdir()] == ["young"]


class _FailingSync(LocalFiles):
    """A file system whose folders cannot be synced."""

    def sync_folder(self, folder: Path) -> None:
        if folder.name == "bad":
            raise OSError(5, "Input/output error")
        super().sync_folder(folder)


@in_loop
async def test_a_failed_sync_is_not_a_success(tmp_path: Path) -> None:
    """A write that may not survive is reported as unknown, and nothing stays aside."""
    (tmp_path / "bad").mkdir()
    store = FolderObjects(tmp_path, _FailingSync())
    with pytest.raises(ObjectsUnavailable, match="Input/output"):
        await store.put("bad/key", b"")
    assert list((tmp_path / ".penstock" / "tmp").iterdir()) == []
