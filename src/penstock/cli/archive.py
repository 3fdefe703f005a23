"""`penstock archive`: the log's continuation in object storage."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import (
    data_dir_option,
    existing_data_directory,
    human_bytes,
    json_option,
    parse_topic,
    partitions_of,
    print_json,
    print_table,
    say,
)
from penstock.cli.object_stores import ArchivePlace, archive_options, archive_stores

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.archive import Catalog
    from penstock.model import Topic
    from penstock.storage import Partition
    from penstock.storage.metadata import Lease, Metadata
    from penstock.storage.objects import ObjectStore

_archive_options = archive_options(required=True)


@click.group()
def archive() -> None:
    """Look at the archive, or add to it.

    Example: penstock archive status --objects s3://telemetry/archive
    """


@archive.command()
@data_dir_option
@_archive_options
@json_option
def status(data_dir: Path, archive: ArchivePlace, as_json: bool) -> None:
    """Show what is archived of each topic, and who owns it.

    Asks both stores; works with the server running or stopped. Objects that the metadata lack are
    counted by their names; metadata of another archive than the objects' are refused.

    Example: penstock archive status --objects s3://telemetry/archive
    """
    found = asyncio.run(_statuses(*archive.of(data_dir), archive.root))
    if as_json:
        print_json(found)
    elif not found:
        say("nothing is archived yet")
    else:
        shown = ["topic", "partition", "start_offset", "end_offset", "objects", "messages"]
        rows = [
            [*(row[key] for key in shown), human_bytes(row["bytes"]), row["owner"] or "-"]
            for row in found
        ]
        print_table([*shown, "size", "owner"], rows)
        _name_undescribed(found)


@archive.command()
@click.argument("topic", metavar="[TOPIC]", required=False, callback=parse_topic)
@data_dir_option
@_archive_options
@click.option("--zstd", is_flag=True, help="Compress what is uploaded.")
@click.option(
    "--wait",
    "patience_s",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    help="Seconds to wait for an owner that stopped without a word.",
)
@json_option
def upload(
    topic: Topic | None,
    data_dir: Path,
    archive: ArchivePlace,
    zstd: bool,
    patience_s: float,
    as_json: bool,
) -> None:
    """Upload what is in the finished log files of a data directory and not archived yet.

    For a server that is stopped, or runs without an archive; one that archives does this by itself.
    TOPIC is /namespace/name; without it every topic is uploaded. Safe to repeat and to interrupt.

    Example: penstock archive upload --objects s3://telemetry/archive
    """
    directory = existing_data_directory(data_dir)
    partitions = partitions_of(directory, topic, None)

    async def upload_all() -> list[dict[str, Any]]:
        async with archive_stores(*archive.of(data_dir), create=True) as stores:
            run = _Uploads(*stores, archive.root, directory.identity(), zstd, patience_s)
            return [await run.upload(partition) for partition in partitions]

    found = asyncio.run(upload_all())
    if as_json:
        print_json(found)
        return
    for row in found:
        where = f"{row['topic']} partition {row['partition']}"
        size = human_bytes(row["bytes"])
        say(f"{where}: {row['objects']} objects, {row['messages']} messages, {size}")
    if not found:
        say(f"{data_dir} holds no topics yet")


@archive.command()
@click.argument("topic", metavar="TOPIC", callback=parse_topic)
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True)
@data_dir_option
@_archive_options
@json_option
def rebuild(
    topic: Topic,
    partition: int,
    data_dir: Path,
    archive: ArchivePlace,
    as_json: bool,
) -> None:
    """Describe the objects of a topic again, where the metadata store was lost or is an older one.

    Reads every object that it describes. Changes nothing where all are described already, and never
    an object.

    Example: penstock archive rebuild --objects s3://telemetry/archive traces
    """

    async def work() -> dict[str, Any]:
        from penstock.archive import Catalog
        from penstock.archive.rebuild import rebuild_archive

        async with archive_stores(*archive.of(data_dir), create=True) as stores:
            catalog = Catalog(*stores, topic, partition, root=archive.root)
            made, left = await rebuild_archive(catalog, "rebuild")
        end = made[-1].end_offset if made else 0
        return {"topic": str(topic), "objects": len(made), "end_offset": end, "left": left}

    found = asyncio.run(work())
    if as_json:
        print_json(found)
    elif not found["objects"]:
        say(f"nothing is archived of {topic}")
    else:
        left = f", {len(found['left'])} left alone" if found["left"] else ""
        say(f"{topic}: {found['objects']} objects to offset {found['end_offset']}{left}")


async def _statuses(objects_url: str, metadata_url: str, root: str) -> list[dict[str, Any]]:
    from penstock.archive import archived_partitions
    from penstock.archive.contents import all_statuses
    from penstock.archive.objects import check_empty

    async with archive_stores(objects_url, metadata_url, lenient=True) as (objects, metadata):
        if not await archived_partitions(metadata, root):
            await check_empty(objects, f"{root}/", objects_url, metadata_url)
        return [asdict(one) for one in await all_statuses(objects, metadata, root)]


def _name_undescribed(found: list[dict[str, Any]]) -> None:
    from penstock.archive.contents import REMEDY, counted

    for row in found:
        if row["undescribed"]:
            where = f"{row['topic']} partition {row['partition']}"
            text = f"the metadata lack {counted(row['undescribed'])} of them"
            say(f"{where}: {text}; {REMEDY}", err=True)


@dataclass(frozen=True)
class _Uploads:
    objects: ObjectStore
    metadata: Metadata
    root: str
    directory: str
    zstd: bool
    patience_s: float

    async def upload(self, partition: Partition) -> dict[str, Any]:
        """All that the finished files of a partition have and the archive lacks."""
        from penstock.archive import ArchiveSettings, Catalog, SealedFiles, Uploader
        from penstock.storage import LocalFiles

        place = partition.topic, partition.number
        catalog = Catalog(self.objects, self.metadata, *place, root=self.root)
        lease = await self._acquired(catalog)
        source = SealedFiles(LocalFiles(), partition.log_folder)
        settings = ArchiveSettings(compression=self.zstd)
        directory = uuid.UUID(self.directory)
        uploader = Uploader(catalog, lease, partition.folder, source, settings, directory=directory)
        try:
            await uploader.drain()
            await uploader.tidy()
        finally:
            await lease.release()
        known = {"topic": str(partition.topic), "partition": partition.number}
        return {**known, **asdict(uploader.totals)}

    async def _acquired(self, catalog: Catalog) -> Lease:
        """Waits for an owner that may be gone; LeaseHeld names one that lives."""
        from penstock.archive.claim import acquire_later
        from penstock.model.errors import LeaseHeld
        from penstock.storage.metadata import Leases

        leases, patience_s = Leases(self.metadata), self.patience_s
        while True:
            try:
                return await acquire_later(catalog, leases, f"{self.directory}/upload")
            except LeaseHeld as held:
                if held.retry_after_s > patience_s:
                    raise
                patience_s -= held.retry_after_s
                await asyncio.sleep(held.retry_after_s)
