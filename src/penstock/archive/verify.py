"""Verifies an archive: identity, descriptors, every byte of its objects, and what is missing."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Final

from penstock.archive import format as fmt
from penstock.archive.contents import counted
from penstock.archive.encoder import ObjectDecoder
from penstock.archive.identity import identity_key, marked
from penstock.archive.objects import choose, stored_objects, undescribed
from penstock.model.damage import Damage, DamageReport
from penstock.model.errors import ArchiveConflict, FormatError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.archive.catalog import Catalog
    from penstock.archive.format import Descriptor
    from penstock.archive.objects import StoredObject

LOST_METADATA: Final = "metadata"
"""The kind of damage that can be repaired: objects that nobody describes."""
_SETTLED_S: Final = 1.0
"""An uploader describes an object sooner after it is there."""


async def verify_archive(
    catalog: Catalog, progress: Callable[[int], object] | None = None, url: str = ""
) -> DamageReport:
    """Reads every object of a partition; changes nothing, and is safe beside a running uploader.

    `progress` is called with the bytes of each piece that was read; names in the report begin with
    `url`. Kinds of damage: `identity`, `metadata`, `descriptor`, `gap`, `overlap`, `missing`,
    `size`, `header`, `block`, `checksum`, `lost`.
    """
    report = DamageReport(url, archives=1)
    is_known = await _check_identity(catalog, report)
    keys = [info.key async for info in catalog.objects.list(catalog.objects_prefix)]
    descriptors = await _descriptors(catalog, report)
    _check_order(catalog, descriptors, report)
    for descriptor in descriptors:
        await _Check(catalog, descriptor, report, progress or (lambda _: None)).run()
    known = {catalog.object_key(one.object_id) for one in descriptors}
    if is_known:
        known |= await _check_behind(catalog, report)
    if orphans := [key for key in keys if key not in known]:
        # Harmless: the uploader's next cleaning removes them.
        text = f"{counted(len(orphans))} without a descriptor, such as {orphans[0]}"
        report.notes.append(f"{catalog.path}: {text}")
    return report


async def _check_identity(catalog: Catalog, report: DamageReport) -> bool:
    """Whether the metadata are those of the objects."""
    where = identity_key(catalog)
    try:
        mark = await marked(catalog)
    except ArchiveConflict as error:
        report.add_damage(where, 0, "identity", str(error))
        return False
    entry = await catalog.metadata.get(identity_key(catalog))
    identity = mark.identity if mark is not None else None
    if entry is not None and identity != entry.data.decode(errors="replace"):
        text = f"the metadata is of another archive than the objects, which are of {identity}"
        report.add_damage(where, 0, "identity", text)
        return False
    if entry is None:
        await _check_forgotten(catalog, report)
    return entry is not None


async def _check_forgotten(catalog: Catalog, report: DamageReport) -> None:
    found = [one async for one in stored_objects(catalog)]
    if not found:
        return
    first = position = min(one.start_offset for one in found)
    lost = 0
    for one in sorted(found, key=lambda one: (one.start_offset, one.end_offset)):
        lost += max(0, one.end_offset - max(one.start_offset, position))
        position = max(position, one.end_offset)
    text = f"the metadata knows nothing of {counted(len(found))}; --repair describes them again"
    report.add_damage(catalog.objects_prefix, 0, LOST_METADATA, text, first, lost)


async def _check_behind(catalog: Catalog, report: DamageReport) -> set[str]:
    """The keys of objects that go on behind the newest descriptor, and that nobody describes."""
    found = await _behind(catalog)
    if found:
        await asyncio.sleep(_SETTLED_S)
        still = {one.info.key for one in await _behind(catalog)}
        found = [one for one in found if one.info.key in still]
    if found:
        first, end = found[0].start_offset, found[-1].end_offset
        text = f"{counted(len(found))} behind the newest descriptor that the metadata lack"
        text = f"{text}; --repair describes them"
        report.add_damage(found[0].info.key, 0, LOST_METADATA, text, first, end - first)
    return {one.info.key for one in found}


async def _behind(catalog: Catalog) -> list[StoredObject]:
    descriptors = await _descriptors(catalog, DamageReport(""))
    last = descriptors[-1] if descriptors else None
    stored = [one async for one in undescribed(catalog, last)]
    return choose(stored, last.end_offset if last is not None else 0)


async def _descriptors(catalog: Catalog, report: DamageReport) -> list[Descriptor]:
    found = []
    for entry in await catalog.entries():
        try:
            found.append(fmt.decode_descriptor(entry.data))
        except FormatError as error:
            # Its key is of the other store.
            report.damage.append(Damage(entry.key, 0, "descriptor", str(error)))
    return found


def _check_order(catalog: Catalog, descriptors: list[Descriptor], report: DamageReport) -> None:
    for one, following in itertools.pairwise(descriptors):
        gap = following.start_offset - one.end_offset
        if gap:
            kind = "gap" if gap > 0 else "overlap"
            text = f"offsets to {one.end_offset} are followed by {following.start_offset}"
            where = catalog.object_key(following.object_id)
            report.add_damage(where, 0, kind, text, one.end_offset, max(0, gap))


class _Check:
    """One object."""

    def __init__(
        self,
        catalog: Catalog,
        descriptor: Descriptor,
        report: DamageReport,
        progress: Callable[[int], object],
    ) -> None:
        self._catalog = catalog
        self._descriptor = descriptor
        self._report = report
        self._progress = progress
        self._decoder = ObjectDecoder()
        self._key = catalog.object_key(descriptor.object_id)
        self._offset = descriptor.start_offset

    async def run(self) -> None:
        descriptor = self._descriptor
        for first, end in descriptor.lost:
            text = "the log could not be read when it was archived"
            self._add("lost", text, first, end - first)
        try:
            await self._read()
        except ObjectMissing:
            now = await self._catalog.descriptor_at(descriptor.start_offset)
            if now is not None and now.object_id == descriptor.object_id:  # else retention's doing
                self._add("missing", "the object is missing", self._offset, descriptor.messages)
            return
        except FormatError as error:
            self._check_header()
            self._add("block", str(error), self._offset, descriptor.end_offset - self._offset)
            return
        self._check_header()
        size = self._decoder.position + self._decoder.waiting_bytes
        if size != descriptor.size:
            text = f"{size} bytes, not {descriptor.size}"
            self._add("size", text, self._offset, descriptor.end_offset - self._offset)
        elif f"crc32:{self._decoder.checksum:08x}" != descriptor.checksum:
            self._add("checksum", "the object is not the one that was described")
        self._report.read(size)

    async def _read(self) -> None:
        async for piece in self._catalog.objects.stream(self._key):
            self._progress(len(piece))
            for head, messages in self._decoder.feed(piece):
                self._report.messages += len(messages)
                self._offset = head.end_offset

    def _check_header(self) -> None:
        header = self._decoder.header
        if header is not None and header != self._descriptor.header:
            text = f"the object says it holds {header.start_offset} to {header.end_offset}"
            self._add("header", text)

    def _add(self, kind: str, detail: str, *lost: int) -> None:
        self._report.add_damage(self._key, self._decoder.position, kind, detail, *lost)
