"""A process that owns a topic and appends to it until it is killed; see test_kill.py."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from penstock.archive.settings import ArchiveSettings
from penstock.archive.topics import Topics
from penstock.model.settings import LogSettings
from penstock.storage import DataDirectory
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from tests.archive.worlds import TOPIC, message


async def append_for_ever(folder: Path) -> None:
    """Prints each offset when it is acknowledged."""
    topics = Topics(
        DataDirectory(folder / "data"),
        open_objects(f"file://{folder}/objects"),
        open_metadata(f"file://{folder}/metadata.db"),
        owner="appender",
        log_settings=LogSettings(rotate_bytes=64 * 1024, retention_bytes=0),
        archive_settings=ArchiveSettings(upload_bytes=20_000, poll_s=0.001, upkeep_interval_s=0.05),
        progress_interval_s=0.01,
    )
    topic = await topics.open(TOPIC)
    await topic.subscribe("lake")
    while True:
        first = topic.log.end_offset
        appends = [topic.log.append(message(offset)) for offset in range(first, first + 50)]
        await appends[-1].durable
        topic.check()
        topic.progress.note("lake", first)
        sys.stdout.write(f"{first + 49} {topic.uploader.archived_offset}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(append_for_ever(Path(sys.argv[1])))
