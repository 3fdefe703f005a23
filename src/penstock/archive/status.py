"""What is in an archive, at a glance: from descriptors alone, without reading an object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.archive.catalog import Catalog, archived_partitions
from penstock.storage.metadata.format import decode_beat, decode_holder

if TYPE_CHECKING:
    from penstock.storage.metadata import Metadata
    from penstock.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """The archive of one topic partition."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    objects: int
    messages: int
    bytes: int
    owner: str | None
    """Who has the topic; None where it was given back, or nobody ever had it."""
    epoch: int
    last_object_at: str | None


async def archive_status(catalog: Catalog) -> ArchiveStatus:
    """Asks the metadata only."""
    descriptors = await catalog.all()
    holder = await catalog.metadata.get(catalog.lease_name)
    beat = await catalog.metadata.get(f"{catalog.lease_name}/beat")
    lease = decode_holder(holder.data) if holder is not None else None
    released = beat is None or decode_beat(beat.data).released
    return ArchiveStatus(
        topic=str(catalog.topic),
        partition=catalog.partition,
        start_offset=descriptors[0].start_offset if descriptors else 0,
        end_offset=descriptors[-1].end_offset if descriptors else 0,
        objects=len(descriptors),
        messages=sum(one.messages for one in descriptors),
        bytes=sum(one.size for one in descriptors),
        owner=None if lease is None or released else lease.owner,
        epoch=lease.epoch if lease is not None else 0,
        last_object_at=descriptors[-1].created_at if descriptors else None,
    )


async def all_statuses(objects: ObjectStore, metadata: Metadata, root: str) -> list[ArchiveStatus]:
    """Of every partition."""
    places = await archived_partitions(metadata, root)
    return [
        await archive_status(Catalog(objects, metadata, topic, number, root=root))
        for topic, number in places
    ]
