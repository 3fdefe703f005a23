"""Archives of earlier versions are read, gone on with, and rebuilt; see `fixture_v1`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.archive.rebuild import rebuild_descriptors
from penstock.archive.verify import verify_archive
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from tests.archive.fixture_v1 import ENDS
from tests.archive.worlds import DIRECTORY, World, messages
from tests.servers.loops import in_loop

_FIXTURE = Path(__file__).parents[1] / "fixtures" / "archive-v1"
_END = ENDS[-1]


@pytest.mark.parametrize("metadata_lost", [False, True])
@in_loop
async def test_archive_of_version_1_goes_on(tmp_path: Path, metadata_lost: bool) -> None:
    """Every message is there, sources are unknown, and what follows says its own."""
    shutil.copytree(_FIXTURE, tmp_path / "old")
    if metadata_lost:
        (tmp_path / "old" / "metadata.db").unlink()
    metadata = open_metadata((tmp_path / "old" / "metadata.db").as_uri())
    it = World(tmp_path / "new", open_objects((tmp_path / "old" / "objects").as_uri()), metadata)
    if metadata_lost:
        _, left = await rebuild_descriptors(it.catalog, await it.lease())
        assert left == []
    assert await it.archived() == messages(0, _END)
    assert [one.source for one in await it.catalog.all()] == [None, None]
    it.log.close()
    shutil.rmtree(tmp_path / "new")
    it.log = it.open_log(least_offset=_END)
    it.append(5)
    await (await it.uploader()).drain()
    assert await it.archived() == messages(0, _END + 5)
    assert [one.source for one in await it.catalog.all()] == [None, None, str(DIRECTORY)]
    assert (await verify_archive(it.catalog)).sound
    it.log.close()
    await metadata.close()
