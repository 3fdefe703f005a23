"""Where the archive of one topic partition is, and what its descriptors say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.archive.format import decode_descriptor
from penstock.archive.settings import DEFAULT_ROOT
from penstock.model.errors import InvalidTopic
from penstock.model.topics import Topic, decode_part, encode_part
from penstock.storage.metadata.format import decode_beat, decode_holder

if TYPE_CHECKING:
    from penstock.archive.format import Descriptor
    from penstock.storage.metadata import Entry, Metadata
    from penstock.storage.objects import ObjectStore

_PAGE = 64
_LAST = "\U0010ffff"


class Catalog:
    """The archive of a partition: objects in the one store, descriptors in the other.

    Reading needs no lease and may be done by anybody. MetadataUnavailable passes through.
    """

    def __init__(
        self,
        objects: ObjectStore,
        metadata: Metadata,
        topic: Topic,
        partition: int = 0,
        *,
        root: str = DEFAULT_ROOT,
    ) -> None:
        self.objects = objects
        self.metadata = metadata
        self.topic = topic
        self.partition = partition
        self.path = topic_path(root, topic, partition)

    @property
    def lease_name(self) -> str:
        """The key of the lease of this partition."""
        return f"{self.path}/lease"

    @property
    def objects_prefix(self) -> str:
        """Where the objects and the descriptors are, each in their store."""
        return f"{self.path}/objects/"

    def object_key(self, object_id: str) -> str:
        """The key of an object."""
        return self.objects_prefix + object_id

    def descriptor_key(self, start_offset: int) -> str:
        """The key of the descriptor that begins there; keys sort as offsets do."""
        return f"{self.objects_prefix}{start_offset:020d}"

    async def descriptor_at(self, start_offset: int) -> Descriptor | None:
        """The one that begins exactly there."""
        entry = await self.metadata.get(self.descriptor_key(start_offset))
        return decode_descriptor(entry.data) if entry is not None else None

    async def holding(self, offset: int) -> Descriptor | None:
        """The one with the offset in it; None where the archive has a gap or ends before."""
        found = await self._range(end=offset + 1, limit=1, newest_first=True)
        descriptor = decode_descriptor(found[0].data) if found else None
        return descriptor if descriptor is not None and offset < descriptor.end_offset else None

    async def first(self) -> Descriptor | None:
        """The oldest."""
        found = await self._range(limit=1)
        return decode_descriptor(found[0].data) if found else None

    async def last(self) -> Descriptor | None:
        """The newest."""
        found = await self._range(limit=1, newest_first=True)
        return decode_descriptor(found[0].data) if found else None

    async def from_offset(self, offset: int, limit: int = _PAGE) -> list[Descriptor]:
        """Up to `limit` descriptors that begin at `offset` or behind it, in order."""
        found = await self._range(start=offset, limit=limit)
        return [decode_descriptor(entry.data) for entry in found]

    async def all(self) -> list[Descriptor]:
        """Every descriptor, in order."""
        return [decode_descriptor(entry.data) for entry in await self._range()]

    async def entries(self) -> list[Entry]:
        """Every descriptor as it stands, for those who look for damage."""
        return await self._range()

    async def end_offset(self) -> int:
        """One past the newest offset in the archive; 0 where it is empty."""
        last = await self.last()
        return last.end_offset if last is not None else 0

    async def _range(
        self,
        *,
        start: int = 0,
        end: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Entry]:
        return await self.metadata.range(
            self.objects_prefix,
            start=self.descriptor_key(start),
            end=None if end is None else self.descriptor_key(end),
            limit=limit,
            newest_first=newest_first,
        )


async def catalogs(
    objects: ObjectStore, metadata: Metadata, *, root: str = DEFAULT_ROOT
) -> list[Catalog]:
    """Every partition that the archive has descriptors of, by topic and number."""
    places = await archived_partitions(metadata, root)
    found = [Catalog(objects, metadata, *place, root=root) for place in places]
    return [one for one in found if await one.first() is not None]


async def archived_partitions(
    metadata: Metadata, root: str = DEFAULT_ROOT
) -> list[tuple[Topic, int]]:
    """Every topic partition that the metadata knows of, by topic and number.

    Asks for one key of each and passes over the rest, however many objects there are.
    """
    prefix = f"{root}/storage/topics/"
    found: set[tuple[Topic, int]] = set()
    start = prefix
    while entries := await metadata.range(prefix, start=start, limit=1):
        parts = entries[0].key.removeprefix(prefix).split("/")
        place = _place(parts)
        path = prefix + "/".join(parts[:2])
        if place is None:
            start = entries[0].key + "\0"
        elif place[1]:
            start = f"{path}/partitions/{place[1]}/{_LAST}"
        else:
            start = f"{path}/{_LAST if place in found else 'partitions/'}"
        if place is not None:
            found.add(place)
    return sorted(found)


def _place(parts: list[str]) -> tuple[Topic, int] | None:
    """The partition whose key has these parts behind the prefix; None for a strange key."""
    try:
        topic = Topic(decode_part(parts[0]), decode_part(parts[1]))
    except (InvalidTopic, IndexError):
        return None
    if parts[2:3] == ["partitions"] and parts[3:4] and parts[3].isdigit():
        return topic, int(parts[3])
    return topic, 0


def topic_path(root: str, topic: Topic, partition: int) -> str:
    """`{root}/storage/topics/{namespace}/{topic}`; partitions but the first have a part more."""
    path = f"{root}/storage/topics/{encode_part(topic.namespace)}/{encode_part(topic.name)}"
    return path if partition == 0 else f"{path}/partitions/{partition}"


# --- at a glance -------------------------------------------------------------------------------


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
    """What is there at a glance: asks the metadata only, and reads no object."""
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
