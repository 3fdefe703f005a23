"""The archive in tests/fixtures/archive-v1, as 0.1 wrote it: every later version must read it.

`python -m tests.archive.fixture_v1 FOLDER` wrote it. It is not written again: a new version gets a
folder of its own.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from penstock.archive import ArchiveSettings
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from tests.archive.worlds import World

ENDS = (12, 25)
"""Where its two objects end; the second is compressed."""


async def write(folder: Path) -> None:
    """`objects/` and `metadata.db`; the log in `partition/` is of no further use."""
    metadata = open_metadata((folder / "metadata.db").as_uri())
    objects = open_objects((folder / "objects").as_uri())
    it = World(folder / "partition", objects, metadata)
    for end, compression in zip(ENDS, (False, True), strict=True):
        it.append(end - it.log.end_offset)
        uploader = await it.uploader(ArchiveSettings(compression=compression))
        await uploader.drain()
    it.log.close()
    await metadata.close()


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]).absolute()))
