"""A process that owns a topic and appends to it until it is killed; see test_kill.py."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from penstock.archive.settings import ArchiveSettings
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from tests.archive.worlds import SMALL_FILES, Owner, archiver_of, message


async def append_for_ever(folder: Path) -> None:
    """Prints each offset when it is acknowledged."""
    archiver = archiver_of(
        folder / "data",
        open_objects(f"file://{folder}/objects"),
        open_metadata(f"file://{folder}/metadata.db"),
        settings=ArchiveSettings(upload_bytes=20_000, poll_s=0.001, upkeep_interval_s=0.05),
    )
    owner = await Owner.open(archiver, folder / "data", log_settings=SMALL_FILES)
    while True:
        first = owner.log.end_offset
        appends = [owner.log.append(message(offset)) for offset in range(first, first + 50)]
        await appends[-1].durable
        owner.archiving.check()
        sys.stdout.write(f"{first + 49} {owner.archiving.uploader.archived_offset}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(append_for_ever(Path(sys.argv[1])))
