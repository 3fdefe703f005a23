"""Verifies an archive: descriptors, objects, every checksum, and that nothing is missing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.archive import format as fmt
from penstock.archive.encoder import ObjectDecoder
from penstock.model.errors import FormatError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.archive.catalog import Catalog
    from penstock.archive.format import Descriptor


@dataclass(frozen=True, slots=True)
class ArchiveDamage:
    """One thing that is wrong."""

    file: str
    """The object's id, or the descriptor's key."""
    position: int
    kind: str
    """`descriptor`, `gap`, `overlap`, `missing`, `size`, `header`, `block`, `checksum`, `lost`."""
    detail: str
    first_offset: int | None = None
    messages_lost: int = 0


@dataclass(slots=True)
class ArchiveReport:
    """What was found in the archive of one partition."""

    path: str
    objects: int = 0
    bytes: int = 0
    messages: int = 0
    damage: list[ArchiveDamage] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    """Objects without a descriptor: harmless, and removed by the uploader's next cleaning."""

    @property
    def sound(self) -> bool:
        """Whether every message that the descriptors promise can be read."""
        return not self.damage

    @property
    def messages_lost(self) -> int:
        """Of all damage together."""
        return sum(damage.messages_lost for damage in self.damage)


async def verify_archive(
    catalog: Catalog, progress: Callable[[int], object] | None = None
) -> ArchiveReport:
    """Reads every object; changes nothing, and is safe beside a running uploader.

    `progress` is called with the bytes of each piece that was read.
    """
    report = ArchiveReport(catalog.path)
    keys = [info.key async for info in catalog.objects.list(catalog.objects_prefix)]
    descriptors = await _descriptors(catalog, report)
    _check_order(descriptors, report)
    known = {catalog.object_key(one.object_id) for one in descriptors}
    report.orphans = [key for key in keys if key not in known]
    for descriptor in descriptors:
        await _Check(catalog, descriptor, report, progress or (lambda _: None)).run()
    return report


async def _descriptors(catalog: Catalog, report: ArchiveReport) -> list[Descriptor]:
    found = []
    for entry in await catalog.entries():
        try:
            found.append(fmt.decode_descriptor(entry.data))
        except FormatError as error:
            report.damage.append(ArchiveDamage(entry.key, 0, "descriptor", str(error)))
    return found


def _check_order(descriptors: list[Descriptor], report: ArchiveReport) -> None:
    for one, following in itertools.pairwise(descriptors):
        gap = following.start_offset - one.end_offset
        if gap:
            kind = "gap" if gap > 0 else "overlap"
            text = f"offsets to {one.end_offset} are followed by {following.start_offset}"
            report.damage.append(
                ArchiveDamage(following.object_id, 0, kind, text, one.end_offset, max(0, gap))
            )


class _Check:
    """One object."""

    def __init__(
        self,
        catalog: Catalog,
        descriptor: Descriptor,
        report: ArchiveReport,
        progress: Callable[[int], object],
    ) -> None:
        self._catalog = catalog
        self._descriptor = descriptor
        self._report = report
        self._progress = progress
        self._decoder = ObjectDecoder()
        self._offset = descriptor.start_offset

    async def run(self) -> None:
        descriptor = self._descriptor
        for first, end in descriptor.lost:
            text = "the log could not be read when it was archived"
            self._add("lost", text, first, end - first)
        try:
            await self._read()
        except ObjectMissing:
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
            self._add("checksum", "the object is not the one that was described", None, 0)
        self._report.objects += 1
        self._report.bytes += size

    async def _read(self) -> None:
        key = self._catalog.object_key(self._descriptor.object_id)
        async for piece in self._catalog.objects.stream(key):
            self._progress(len(piece))
            for head, messages in self._decoder.feed(piece):
                self._report.messages += len(messages)
                self._offset = head.end_offset

    def _check_header(self) -> None:
        header = self._decoder.header
        if header is not None and header != self._descriptor.header:
            text = f"the object says it holds {header.start_offset} to {header.end_offset}"
            self._add("header", text, None, 0)

    def _add(self, kind: str, detail: str, first_offset: int | None, lost: int) -> None:
        self._report.damage.append(
            ArchiveDamage(
                self._descriptor.object_id, self._decoder.position, kind, detail, first_offset, lost
            )
        )
