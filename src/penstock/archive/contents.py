"""What an archive has, whoever knows of it: what is described, and the objects that are not.

Objects come before their descriptors, and the two stores are lost and restored apart. So the
descriptors alone are never the whole archive: whoever counts or reads asks here, and leaves nothing
out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from penstock.archive.catalog import Catalog, archived_partitions
from penstock.archive.identity import check_halves, identity_key, marked
from penstock.archive.objects import archive_objects, choose, undescribed
from penstock.archive.rebuild import describe_object
from penstock.model.errors import ArchiveConflict, ObjectMissing
from penstock.storage.metadata.format import decode_beat, decode_holder

if TYPE_CHECKING:
    from penstock.archive.format import Descriptor
    from penstock.archive.objects import StoredObject
    from penstock.model.topics import Topic
    from penstock.storage.metadata import Metadata
    from penstock.storage.objects import ObjectStore

_LOG = logging.getLogger(__name__)
REMEDY: Final = (
    "the server that goes on with the archive describes them, or `penstock archive rebuild`"
)
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Contents:
    """The archive of one topic partition."""

    descriptors: list[Descriptor]
    undescribed: list[StoredObject]
    """Behind the newest descriptor, in order; all there are where the metadata were lost."""
    is_known: bool
    """Whether the metadata are of this archive. Else they were lost, or are being made again."""


async def contents(catalog: Catalog) -> Contents:
    """Both halves of an archive. ArchiveConflict: they are of two.

    Beside an uploader the last object may be undescribed for a moment.
    """
    entry = await catalog.metadata.get(identity_key(catalog))
    if entry is not None:
        check_halves(catalog, entry.data, await marked(catalog))
    last = await catalog.last() if entry is not None else None
    stored = [one async for one in undescribed(catalog, last)]
    if entry is None and stored:
        return Contents([], choose(stored), is_known=False)
    # In this order: what is described between the two is counted once.
    descriptors = await catalog.all()
    end = descriptors[-1].end_offset if descriptors else 0
    return Contents(descriptors, choose(stored, end), is_known=True)


async def whole(catalog: Catalog) -> Catalog:
    """The archive for who reads it: objects that the metadata lack are described by reading them.

    ArchiveConflict: the metadata know nothing of the archive, or are of another one. Damaged: an
    object that nobody described cannot be read. Writes nothing.
    """
    for attempt in range(_ATTEMPTS):
        found = await contents(catalog)
        if not found.is_known:
            count = counted(len(found.undescribed))
            text = f"{catalog.path} has {count}, and the metadata knows nothing of them"
            raise ArchiveConflict(f"{text}: {REMEDY}")
        try:
            more = [await describe_object(catalog, one.info) for one in found.undescribed]
        except ObjectMissing:  # a cleaning was faster: it has a successor, which is described
            if attempt + 1 == _ATTEMPTS:
                raise
        else:
            _say_what_is_gone(catalog, [*found.descriptors, *more])
            return catalog.completed(more)
    raise AssertionError


def _say_what_is_gone(catalog: Catalog, descriptors: list[Descriptor]) -> None:
    """Not refused: what is lost stays lost, and the rest must be had all the same."""
    for before, after in pairwise(descriptors):
        if before.end_offset < after.start_offset:
            text = "%s lacks the messages %d to %d, `penstock fsck` says why: the rest is read"
            _LOG.warning(text, catalog.path, before.end_offset, after.start_offset - 1)


async def all_partitions(
    objects: ObjectStore, metadata: Metadata, root: str
) -> list[tuple[Topic, int]]:
    """Every topic partition that either store knows of, by topic and number."""
    known = await archived_partitions(metadata, root)
    return sorted({*known, *await archive_objects(objects, root)})


def counted(objects: int) -> str:
    """So many objects, in words."""
    return "1 object" if objects == 1 else f"{objects} objects"


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
    undescribed: int
    """Objects among them that the metadata lack; their messages are counted by their names."""


async def archive_status(catalog: Catalog) -> ArchiveStatus:
    """What is there at a glance; reads no object. ArchiveConflict: as `contents`."""
    found = await contents(catalog)
    described, more = found.descriptors, found.undescribed
    everything: list[Descriptor | StoredObject] = [*described, *more]
    holder = await catalog.metadata.get(catalog.lease_name)
    beat = await catalog.metadata.get(f"{catalog.lease_name}/beat")
    lease = decode_holder(holder.data) if holder is not None else None
    released = beat is None or decode_beat(beat.data).released
    return ArchiveStatus(
        topic=str(catalog.topic),
        partition=catalog.partition,
        start_offset=everything[0].start_offset if everything else 0,
        end_offset=everything[-1].end_offset if everything else 0,
        objects=len(everything),
        messages=sum(one.messages for one in described)
        + sum(one.end_offset - one.start_offset for one in more),
        bytes=sum(one.size for one in described) + sum(one.info.size for one in more),
        owner=None if lease is None or released else lease.owner,
        epoch=lease.epoch if lease is not None else 0,
        last_object_at=_made_at(found),
        undescribed=len(more),
    )


def _made_at(found: Contents) -> str | None:
    if found.undescribed:
        return found.undescribed[-1].info.modified.isoformat(timespec="milliseconds")
    return found.descriptors[-1].created_at if found.descriptors else None


async def all_statuses(objects: ObjectStore, metadata: Metadata, root: str) -> list[ArchiveStatus]:
    """Of every partition that either store knows of."""
    places = await all_partitions(objects, metadata, root)
    return [
        await archive_status(Catalog(objects, metadata, topic, number, root=root))
        for topic, number in places
    ]
