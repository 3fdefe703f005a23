"""Owners that are killed, and stores that are: what was acknowledged is there, once."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.archive.settings import ArchiveSettings
from penstock.archive.verify import verify_archive
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from tests.archive.worlds import SMALL_FILES, Owner, archiver_of, messages
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


@in_loop
async def test_a_killed_owner_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Killed at any moment and started again, four times."""
    chance, acked, archived = random.Random(7), 0, 0
    for _ in range(4):
        lines = chance.randint(20, 150)
        now_acked, now_archived = await asyncio.to_thread(_run_and_kill, tmp_path, lines)
        assert now_acked > acked
        acked, archived = now_acked, max(archived, now_archived)
    archiver = archiver_of(
        tmp_path / "data",
        open_objects(f"file://{tmp_path}/objects"),
        metadata := open_metadata(f"file://{tmp_path}/metadata.db"),
        settings=ArchiveSettings(upload_interval_s=1e9),
    )
    owner = await Owner.open(archiver, tmp_path / "data", log_settings=SMALL_FILES)
    catalog, uploader = owner.archiving.catalog, owner.archiving.uploader
    assert archived > 0
    assert await catalog.end_offset() >= archived
    end = owner.log.end_offset
    assert end > acked
    assert await owner.messages() == messages(0, end)
    await uploader.drain()
    await uploader.tidy()
    report = await verify_archive(catalog)
    assert (report.damage, report.notes, report.messages) == ([], [], end)
    await owner.close()
    await metadata.close()


async def _until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not what():
            await asyncio.sleep(0.02)


@in_loop
async def test_stores_that_go_away_and_come_back(tmp_path: Path) -> None:
    """The S3 server and etcd are killed and started again in the middle; nobody else notices."""
    s3, etcd = S3Server(tmp_path / "s3"), EtcdServer(tmp_path / "etcd")
    try:
        await asyncio.gather(asyncio.to_thread(s3.start), asyncio.to_thread(etcd.start))
        objects = open_objects(s3.place(), s3.options)
        metadata = open_metadata(etcd.place(), {"timeout_s": "1"})
        settings = ArchiveSettings(upload_interval_s=0.05, poll_s=0.02, retry_s=0.05)
        data, more = tmp_path / "data", {"settings": settings, "ttl_s": 60.0}
        archiver = archiver_of(data, objects, metadata, **more)
        owner = await Owner.open(archiver, data, log_settings=SMALL_FILES)
        log, uploader = owner.log, owner.archiving.uploader
        for server in (s3, etcd):
            await owner.append(300)
            await _until(lambda: (uploader.archived_offset or 0) >= log.end_offset)
            failures = uploader.totals.failures
            server.kill()
            await owner.append(300)
            await _until(lambda before=failures: uploader.totals.failures > before)  # type: ignore[misc]
            assert owner.archiving.failure is None
            await asyncio.to_thread(server.start)
            await _until(lambda: (uploader.archived_offset or 0) >= log.end_offset)
        await uploader.tidy()
        report = await verify_archive(owner.archiving.catalog)
        assert (report.damage, report.notes, report.messages) == ([], [], 1200)
        log.enforce_retention()
        assert await owner.messages() == messages(0, 1200)
        await owner.close()
        await metadata.close()
    finally:
        s3.stop()
        etcd.stop()
