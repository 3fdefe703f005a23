"""Where the archive of one topic partition is, and what its descriptors say."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from penstock.archive.format import decode_descriptor, encode_descriptor
from penstock.archive.settings import DEFAULT_ROOT
from penstock.model.errors import InvalidTopic
from penstock.model.topics import Topic, decode_part, encode_part
from penstock.storage.metadata.model import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.archive.format import Descriptor
    from penstock.storage.metadata import Metadata
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
        self._more: list[Entry] = []

    def completed(self, more: Sequence[Descriptor]) -> Catalog:
        """The same with descriptors that the metadata lack; they stand behind its newest."""
        found = copy.copy(self)
        found._more = [  # noqa: SLF001 - its own
            Entry(self.descriptor_key(one.start_offset), encode_descriptor(one), 0) for one in more
        ]
        return found

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
        low = self.descriptor_key(start)
        high = self.descriptor_key(end) if end is not None else self.objects_prefix + _LAST
        found = await self.metadata.range(
            self.objects_prefix, start=low, end=high, limit=limit, newest_first=newest_first
        )
        if not self._more:
            return found
        more = [one for one in await self._behind() if low <= one.key < high]
        return ([*more[::-1], *found] if newest_first else [*found, *more])[:limit]

    async def _behind(self) -> list[Entry]:
        """Of the descriptors that were lacking, those that still do: others have come since."""
        last = await self.metadata.range(self.objects_prefix, limit=1, newest_first=True)
        end = decode_descriptor(last[0].data).end_offset if last else 0
        return [one for one in self._more if one.key >= self.descriptor_key(end)]


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
