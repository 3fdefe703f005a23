"""Owners that are killed, and stores that are: what was acknowledged is there, once."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.archive.settings import ArchiveSettings
from penstock.archive.topics import ArchivedTopic, Topics
from penstock.archive.verify import verify_archive
from penstock.storage import DataDirectory
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from tests.archive.worlds import SMALL_FILES, TOPIC, message, messages
from tests.patience import PATIENCE_S
from tests.servers.etcd import EtcdServer
from tests.servers.loops import in_loop
from tests.servers.seaweed import S3Server

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT = Path(__file__).parents[2]


def _run_and_kill(folder: Path, lines: int) -> tuple[int, int]:
    """Lets it acknowledge so often and upload something, then kills it; how far it said it was."""
    command = [sys.executable, "-m", "tests.archive.appending", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        while lines > 0 or said.endswith((b" 0\n", b" None\n")):
            lines -= 1
            said = process.stdout.readline()
        process.kill()
    acked, archived = said.split()
    return int(acked), int(archived)


async def _everything(topic: ArchivedTopic) -> list[tuple[int, bytes]]:
    reader, found = topic.read(0), []
    while (batch := await reader.read_batch()) is not None:
        found += list(enumerate(batch.messages, batch.first_offset))
    assert reader.lost == []
    reader.close()
    return found


@in_loop
async def test_a_killed_owner_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Killed at any moment and started again, four times."""
    chance, acked, archived = random.Random(7), 0, 0
    for _ in range(4):
        lines = chance.randint(20, 150)
        now_acked, now_archived = await asyncio.to_thread(_run_and_kill, tmp_path, lines)
        assert now_acked > acked
        acked, archived = now_acked, max(archived, now_archived)
    topics = Topics(
        DataDirectory(tmp_path / "data"),
        open_objects(f"file://{tmp_path}/objects"),
        metadata := open_metadata(f"file://{tmp_path}/metadata.db"),
        owner="appender",
        log_settings=SMALL_FILES,
        archive_settings=ArchiveSettings(upload_interval_s=1e9),
    )
    topic = await topics.open(TOPIC)
    assert archived > 0
    assert await topic.catalog.end_offset() >= archived
    end = topic.log.end_offset
    assert end > acked
    assert await _everything(topic) == messages(0, end)
    assert 0 <= (topic.progress.offset("lake") or 0) <= end
    await topic.uploader.drain()
    await topic.uploader.tidy()
    report = await verify_archive(topic.catalog)
    assert (report.damage, report.orphans, report.messages) == ([], [], end)
    await topics.close()
    await metadata.close()


async def _until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not what():
            await asyncio.sleep(0.02)


async def _append_more(topic: ArchivedTopic, count: int = 300) -> None:
    for _ in range(count):
        await topic.append(message(topic.log.end_offset))


@in_loop
async def test_stores_that_go_away_and_come_back(tmp_path: Path) -> None:
    """The S3 server and etcd are killed and started again in the middle; nobody else notices."""
    s3, etcd = S3Server(tmp_path / "s3"), EtcdServer(tmp_path / "etcd")
    try:
        await asyncio.gather(asyncio.to_thread(s3.start), asyncio.to_thread(etcd.start))
        objects = open_objects(s3.place(), s3.options)
        metadata = open_metadata(etcd.place(), {"timeout_s": "1"})
        topics = Topics(
            DataDirectory(tmp_path / "data"),
            objects,
            metadata,
            owner="a",
            log_settings=SMALL_FILES,
            archive_settings=ArchiveSettings(upload_interval_s=0.05, poll_s=0.02, retry_s=0.05),
            ttl_s=60.0,
        )
        topic = await topics.open(TOPIC)
        for server in (s3, etcd):
            await _append_more(topic)
            await _until(lambda: (topic.uploader.archived_offset or 0) >= topic.log.end_offset)
            failures = topic.uploader.totals.failures
            server.kill()
            await _append_more(topic)
            await _until(lambda before=failures: topic.uploader.totals.failures > before)  # type: ignore[misc]
            assert topic.failure is None
            await asyncio.to_thread(server.start)
            await _until(lambda: (topic.uploader.archived_offset or 0) >= topic.log.end_offset)
        await topic.uploader.tidy()
        report = await verify_archive(topic.catalog)
        assert (report.damage, report.orphans, report.messages) == ([], [], 1200)
        topic.log.enforce_retention()
        assert await _everything(topic) == messages(0, 1200)
        await topics.close()
        await metadata.close()
    finally:
        s3.stop()
        etcd.stop()
