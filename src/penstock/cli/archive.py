"""`penstock archive`: the log's continuation in object storage."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import asdict
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
from penstock.cli.object_stores import metadata_option, objects_option, root_option
from penstock.model.errors import ArchiveConflict
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.archive import ArchiveSettings, Catalog
    from penstock.model import Topic
    from penstock.storage import Partition
    from penstock.storage.metadata import Lease, Leases, Metadata
    from penstock.storage.objects import ObjectStore

_objects_option = objects_option(required=True)
_metadata_option = metadata_option("metadata.db in the data directory")


@click.group()
def archive() -> None:
    """Look at the archive, or add to it.

    Example: penstock archive status --objects s3://telemetry/archive
    """


@archive.command()
@data_dir_option
@_objects_option
@_metadata_option
@root_option
@json_option
def status(
    data_dir: Path, objects_url: str, metadata_url: str | None, root: str, as_json: bool
) -> None:
    """Show what is archived of each topic, and who owns it.

    Asks the metadata store; works with the server running or stopped.

    Example: penstock archive status --objects s3://telemetry/archive
    """
    found = asyncio.run(
        _statuses(objects_url, metadata_url or DataDirectory(data_dir).metadata_url, root)
    )
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


@archive.command()
@click.argument("topic", metavar="[TOPIC]", required=False, callback=parse_topic)
@data_dir_option
@_objects_option
@_metadata_option
@root_option
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
    objects_url: str,
    metadata_url: str | None,
    root: str,
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
    where = metadata_url or DataDirectory(data_dir).metadata_url
    identity = uuid.UUID(directory.identity())
    uploading = _upload(partitions, objects_url, where, root, identity, zstd, patience_s)
    found = asyncio.run(uploading)
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
@_objects_option
@_metadata_option
@root_option
@json_option
def rebuild(
    topic: Topic,
    partition: int,
    data_dir: Path,
    objects_url: str,
    metadata_url: str | None,
    root: str,
    as_json: bool,
) -> None:
    """Describe the objects of a topic again, where the metadata store was lost.

    Reads every object of the topic. Changes nothing where there are descriptors already, and never
    an object.

    Example: penstock archive rebuild --objects s3://telemetry/archive traces
    """

    async def work(objects: ObjectStore, metadata: Metadata) -> list[dict[str, Any]]:
        return [await _rebuilt(objects, metadata, topic, partition, root)]

    where = metadata_url or DataDirectory(data_dir).metadata_url
    (found,) = asyncio.run(_with_stores(objects_url, where, work))
    if as_json:
        print_json(found)
    elif not found["objects"]:
        say(f"nothing is archived of {topic}")
    else:
        left = f", {len(found['left'])} left alone" if found["left"] else ""
        say(f"{topic}: {found['objects']} objects to offset {found['end_offset']}{left}")


async def _rebuilt(
    objects: ObjectStore, metadata: Metadata, topic: Topic, partition: int, root: str
) -> dict[str, Any]:
    from penstock.archive import Catalog
    from penstock.archive.rebuild import rebuild_archive

    catalog = Catalog(objects, metadata, topic, partition, root=root)
    made, left = await rebuild_archive(catalog, "rebuild")
    end = made[-1].end_offset if made else 0
    return {"topic": str(topic), "objects": len(made), "end_offset": end, "left": left}


async def _statuses(objects_url: str, metadata_url: str, root: str) -> list[dict[str, Any]]:
    from penstock.archive.status import all_statuses

    async def look(objects: ObjectStore, metadata: Metadata) -> list[dict[str, Any]]:
        found = await all_statuses(objects, metadata, root)
        if not found and await _has_any(objects, f"{root}/"):
            text = f"{objects_url} has objects, and {metadata_url} knows nothing of them"
            raise ArchiveConflict(f"{text}: is it the right store? `archive rebuild` makes it one")
        return [asdict(one) for one in found]

    return await _with_stores(objects_url, metadata_url, look)


async def _has_any(objects: ObjectStore, prefix: str) -> bool:
    async for _ in objects.list(prefix):
        return True
    return False


async def _upload(
    partitions: list[Partition],
    objects_url: str,
    metadata_url: str,
    root: str,
    directory: uuid.UUID,
    zstd: bool,
    patience_s: float,
) -> list[dict[str, Any]]:
    from penstock.archive import ArchiveSettings
    from penstock.storage.metadata import Leases

    settings = ArchiveSettings(compression=zstd)

    async def work(objects: ObjectStore, metadata: Metadata) -> list[dict[str, Any]]:
        leases = Leases(metadata)
        return [
            await _upload_one(one, objects, metadata, root, leases, directory, settings, patience_s)
            for one in partitions
        ]

    return await _with_stores(objects_url, metadata_url, work)


async def _upload_one(
    partition: Partition,
    objects: ObjectStore,
    metadata: Metadata,
    root: str,
    leases: Leases,
    directory: uuid.UUID,
    settings: ArchiveSettings,
    patience_s: float,
) -> dict[str, Any]:
    from penstock.archive import Catalog, SealedFiles, Uploader
    from penstock.storage import LocalFiles

    catalog = Catalog(objects, metadata, partition.topic, partition.number, root=root)
    lease = await _acquired(catalog, leases, f"{directory}/upload", patience_s)
    source = SealedFiles(LocalFiles(), partition.log_folder)
    folder = partition.folder
    uploader = Uploader(catalog, lease, folder, source, settings, directory=directory)
    try:
        await uploader.drain()
        await uploader.tidy()
    finally:
        await lease.release()
    totals = asdict(uploader.totals)
    return {"topic": str(partition.topic), "partition": partition.number, **totals}


async def _acquired(catalog: Catalog, leases: Leases, owner: str, patience_s: float) -> Lease:
    """Waits for an owner that may be gone; LeaseHeld names one that lives."""
    from penstock.archive.claim import acquire_later
    from penstock.model.errors import LeaseHeld

    while True:
        try:
            return await acquire_later(catalog, leases, owner)
        except LeaseHeld as held:
            if held.retry_after_s > patience_s:
                raise
            patience_s -= held.retry_after_s
            await asyncio.sleep(held.retry_after_s)


async def _with_stores(
    objects_url: str, metadata_url: str, work: Callable[[ObjectStore, Metadata], Any]
) -> list[dict[str, Any]]:
    from penstock.storage.metadata import open_metadata
    from penstock.storage.objects import open_objects

    objects, metadata = open_objects(objects_url), open_metadata(metadata_url)
    try:
        found: list[dict[str, Any]] = await work(objects, metadata)
        return found
    finally:
        await objects.close()
        await metadata.close()
