"""What the objects' names say: which are there, of which offsets, and which follow each other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from penstock.archive.format import object_id, parse_object_id
from penstock.model.errors import ArchiveConflict, InvalidTopic
from penstock.model.topics import Topic, decode_part

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from typing import Protocol

    from penstock.archive.catalog import Catalog
    from penstock.archive.format import Descriptor
    from penstock.storage.objects import ObjectInfo, ObjectStore

    class Ranged(Protocol):
        """Messages of an epoch."""

        @property
        def epoch(self) -> int: ...

        @property
        def start_offset(self) -> int: ...

        @property
        def end_offset(self) -> int: ...


R = TypeVar("R", bound="Ranged")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that is in the store, described or not."""

    epoch: int
    start_offset: int
    end_offset: int
    info: ObjectInfo


async def stored_objects(catalog: Catalog, after: str | None = None) -> AsyncIterator[StoredObject]:
    """Every object behind the key, in the order of epochs and offsets; other names are no objects.

    An upload appears whole or not at all, so each of them is whole.
    """
    async for info in catalog.objects.list(catalog.objects_prefix, after=after):
        parsed = parse_object_id(info.key.removeprefix(catalog.objects_prefix))
        if parsed is not None:
            yield StoredObject(*parsed, info)


async def archive_objects(
    objects: ObjectStore, root: str
) -> dict[tuple[Topic, int], list[ObjectInfo]]:
    """The objects of archives, by partition; names of other kinds are passed over."""
    found: dict[tuple[Topic, int], list[ObjectInfo]] = defaultdict(list)
    prefix = f"{root}/storage/topics/"
    async for info in objects.list(prefix):
        place = _place(info.key.removeprefix(prefix).split("/"))
        if place is not None:
            found[place].append(info)
    return dict(found)


def _place(parts: list[str]) -> tuple[Topic, int] | None:
    """`<ns>/<topic>[/partitions/<n>]/objects/e<epoch>/data-….frames`."""
    if parse_object_id("/".join(parts[-2:])) is None or len(parts) not in (5, 7):
        return None
    try:
        topic = Topic(decode_part(parts[0]), decode_part(parts[1]))
        return topic, int(parts[3]) if len(parts) == 7 else 0
    except (InvalidTopic, ValueError):
        return None


async def has_any(objects: ObjectStore, prefix: str) -> bool:
    """Whether there is anything, described or not."""
    async for _ in objects.list(prefix):
        return True
    return False


async def check_empty(objects: ObjectStore, prefix: str, place: str, metadata: str) -> None:
    """ArchiveConflict where there is something that the metadata should know of, and do not."""
    if await has_any(objects, prefix):
        text = f"{place} has objects, and {metadata} knows nothing of them"
        raise ArchiveConflict(f"{text}: is it the right store? `archive rebuild` makes it one")


def undescribed(catalog: Catalog, last: Descriptor | None) -> AsyncIterator[StoredObject]:
    """The objects behind the newest that is described, from its epoch on: few, as a rule."""
    if last is None:
        return stored_objects(catalog)
    named = object_id(last.epoch, last.start_offset, last.end_offset)
    return stored_objects(catalog, catalog.object_key(named))


def choose(found: Iterable[R], position: int = 0) -> list[R]:
    """The objects that follow each other, from the lowest offset on that is not below `position`.

    Of several that begin together the one of the latest epoch, then the longest: what an attempt
    without an answer left is always earlier or shorter. Where none follows the next higher does.
    """
    by_start: dict[int, list[R]] = defaultdict(list)
    for one in found:
        by_start[one.start_offset].append(one)
    chosen: list[R] = []
    for start in sorted(by_start):
        if start >= position:
            best = max(by_start[start], key=lambda one: (one.epoch, one.end_offset))
            chosen.append(best)
            position = best.end_offset
    return chosen
