"""`penstock fsck` on an archive: objects against descriptors, and descriptors made again."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from penstock.archive import Catalog, archived_partitions, verify_archive
from penstock.archive.claim import acquire_later
from penstock.archive.format import parse_object_id
from penstock.archive.identity import identity_key, marked
from penstock.archive.rebuild import rebuild_descriptors
from penstock.cli.fsck_report import counted
from penstock.model import Topic
from penstock.model.errors import ArchiveConflict, InvalidTopic
from penstock.model.topics import decode_part
from penstock.storage.metadata import Leases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.archive.verify import ArchiveDamage
    from penstock.cli.fsck_report import Findings
    from penstock.storage.metadata import Metadata
    from penstock.storage.objects import ObjectInfo, ObjectStore

LOST_METADATA: Final = "metadata"
"""The kind of damage that can be repaired: objects that nobody describes."""


async def archive_objects(
    objects: ObjectStore, root: str
) -> dict[tuple[Topic, int], list[ObjectInfo]]:
    """The objects of archives, by partition; names of other kinds are passed over."""
    found: dict[tuple[Topic, int], list[ObjectInfo]] = defaultdict(list)
    prefix = f"{root}/storage/topics/"
    async for info in objects.list(prefix):
        parts = info.key.removeprefix(prefix).split("/")
        place = _place(parts)
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


class ArchiveCheck:
    """Every partition of an archive that either of its stores knows."""

    def __init__(self, url: str, objects: ObjectStore, metadata: Metadata, root: str) -> None:
        self._url = url.rstrip("/")
        self._objects = objects
        self._metadata = metadata
        self._root = root
        self.stored: dict[tuple[Topic, int], list[ObjectInfo]] = {}

    async def look(self) -> int:
        """Finds the objects; says how many bytes there are to read."""
        self.stored = await archive_objects(self._objects, self._root)
        for place in await archived_partitions(self._metadata, self._root):
            self.stored.setdefault(place, [])
        return sum(info.size for infos in self.stored.values() for info in infos)

    async def run(self, found: Findings, progress: Callable[[int], object]) -> None:
        """Adds what there is and what is wrong with it."""
        for place, infos in sorted(self.stored.items()):
            catalog = self._catalog(place)
            found.archives += 1
            await self._check_identity(catalog, infos, found)
            report = await verify_archive(catalog, progress)
            found.files_checked += report.objects
            found.bytes_checked += report.bytes
            found.messages += report.messages
            for damage in report.damage:
                if damage.kind != "missing" or await _is_described(catalog, damage.file):
                    self._add(found, catalog, damage)
            if report.orphans:
                text = f"{counted(len(report.orphans), 'object')} without a descriptor"
                found.notes.append(f"{catalog.path}: {text}, such as {report.orphans[0]}")

    async def repair(self) -> list[str]:
        """Describes again what nobody describes; says which objects of it were left alone.

        Takes the topic's lease for it: LeaseHeld where an owner lives.
        """
        left = []
        for place, infos in sorted(self.stored.items()):
            catalog = self._catalog(place)
            if not infos or not await self._is_forgotten(catalog):
                continue
            lease = await acquire_later(catalog, Leases(self._metadata), "fsck")
            try:
                _, kept = await rebuild_descriptors(catalog, lease)
            finally:
                await lease.release()
            left += [catalog.object_key(one) for one in kept]
        return left

    def _add(self, found: Findings, catalog: Catalog, damage: ArchiveDamage) -> None:
        is_key = damage.kind == "descriptor"
        place = f"{self._url}/{catalog.object_key(damage.file)}"
        found.add_damage(
            damage.file if is_key else place,
            damage.detail,
            kind=damage.kind,
            position=damage.position,
            first_offset=damage.first_offset,
            messages_lost=damage.messages_lost,
        )

    def _catalog(self, place: tuple[Topic, int]) -> Catalog:
        return Catalog(self._objects, self._metadata, *place, root=self._root)

    async def _is_forgotten(self, catalog: Catalog) -> bool:
        """Whether the metadata knows nothing of an archive whose objects are marked."""
        entry = await self._metadata.get(identity_key(catalog))
        return entry is None

    async def _check_identity(
        self, catalog: Catalog, infos: list[ObjectInfo], found: Findings
    ) -> None:
        where = f"{self._url}/{identity_key(catalog)}"
        try:
            mark = await marked(catalog)
        except ArchiveConflict as error:
            found.add_damage(where, str(error), kind="identity")
            return
        entry = await self._metadata.get(identity_key(catalog))
        identity = mark.identity if mark is not None else None
        if entry is not None and identity != entry.data.decode(errors="replace"):
            text = f"the metadata is of another archive than the objects, which are of {identity}"
            found.add_damage(where, text, kind="identity")
        elif infos and await self._is_forgotten(catalog):
            first, count = _offsets(infos)
            text = f"the metadata knows nothing of {counted(len(infos), 'object')}"
            text += "; --repair describes them again"
            found.add_damage(
                f"{self._url}/{catalog.objects_prefix}",
                text,
                kind=LOST_METADATA,
                first_offset=first,
                messages_lost=count,
            )


async def _is_described(catalog: Catalog, object_id: str) -> bool:
    """Whether the object is still part of the archive: retention may have been faster."""
    parsed = parse_object_id(object_id)
    now = await catalog.descriptor_at(parsed[1]) if parsed is not None else None
    return parsed is None or (now is not None and now.object_id == object_id)


def _offsets(infos: Iterable[ObjectInfo]) -> tuple[int, int]:
    """The first offset that the names speak of, and how many there are from it on."""
    parsed = [parse_object_id("/".join(info.key.split("/")[-2:])) for info in infos]
    ranges = sorted((one[1], one[2]) for one in parsed if one is not None)
    position, count = ranges[0][0], 0
    for start, end in ranges:
        count += max(0, end - max(start, position))
        position = max(position, end)
    return ranges[0][0], count
