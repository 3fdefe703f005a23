"""Verifies an archive: descriptors, objects, every checksum, and that nothing is missing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isal.isal_zlib import crc32

from penstock.archive import format as fmt
from penstock.archive.encoder import open_block
from penstock.archive.reader import header_of
from penstock.model.errors import FormatError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

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
        self._position = 0
        self._offset = descriptor.start_offset
        self._checksum = 0

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
            self._add("block", str(error), self._offset, descriptor.end_offset - self._offset)
            return
        if self._position != descriptor.size:
            text = f"{self._position} bytes, not {descriptor.size}"
            self._add("size", text, self._offset, descriptor.end_offset - self._offset)
        elif f"crc32:{self._checksum:08x}" != descriptor.checksum:
            self._add("checksum", "the object is not the one that was described", None, 0)
        self._report.objects += 1
        self._report.bytes += self._position

    async def _read(self) -> None:
        header, waiting, seed = None, bytearray(), 0
        async for piece in self._pieces():
            waiting += piece
            if header is None and len(waiting) >= fmt.HEADER_BYTES:
                header = self._header(bytes(waiting[: fmt.HEADER_BYTES]))
                seed = header.seed
                self._consume(waiting, fmt.HEADER_BYTES)
            while header is not None and len(waiting) >= fmt.BLOCK_BYTES:
                head = fmt.decode_block_head(waiting)
                end = fmt.BLOCK_BYTES + head.stored_bytes
                if len(waiting) < end:
                    break
                stored = bytes(memoryview(waiting)[fmt.BLOCK_BYTES : end])
                messages = open_block(head, stored, header.flags, seed)
                self._report.messages += len(messages)
                self._offset = head.end_offset
                self._consume(waiting, end)
        self._position += len(waiting)

    async def _pieces(self) -> AsyncIterator[bytes]:
        key = self._catalog.object_key(self._descriptor.object_id)
        async for piece in self._catalog.objects.stream(key):
            self._checksum = crc32(piece, self._checksum)
            self._progress(len(piece))
            yield piece

    def _header(self, data: bytes) -> fmt.Header:
        header = fmt.decode_header(data)
        if header != header_of(self._descriptor):
            text = f"the object says it holds {header.start_offset} to {header.end_offset}"
            self._add("header", text, None, 0)
        return header

    def _consume(self, waiting: bytearray, count: int) -> None:
        del waiting[:count]
        self._position += count

    def _add(self, kind: str, detail: str, first_offset: int | None, lost: int) -> None:
        self._report.damage.append(
            ArchiveDamage(
                self._descriptor.object_id, self._position, kind, detail, first_offset, lost
            )
        )
