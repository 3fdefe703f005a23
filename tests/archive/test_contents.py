"""What an archive lacks is said to whoever reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.archive.contents import whole
from penstock.archive.settings import ArchiveSettings
from tests.archive.worlds import world
from tests.servers.loops import in_loop

if TYPE_CHECKING:
    import pytest


@in_loop
async def test_messages_that_no_object_has_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest is read; an archive without a gap has nothing to say."""
    async with world(tmp_path) as it:
        it.append(3000)
        await (await it.uploader(ArchiveSettings(upload_bytes=64 * 1024))).drain()
        first, gone, *others = await it.catalog.all()
        assert others
        await whole(it.catalog)
        assert not caplog.records
        await it.metadata.delete(it.catalog.descriptor_key(gone.start_offset))
        found = await (await whole(it.catalog)).all()
        assert [one.start_offset for one in found] == [one.start_offset for one in (first, *others)]
        [record] = caplog.records
        assert f"lacks the messages {gone.start_offset} to {gone.end_offset - 1}" in record.message
