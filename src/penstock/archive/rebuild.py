"""Makes descriptors again from the objects, where the metadata was lost or is an older one."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from penstock.archive import format as fmt
from penstock.archive.claim import acquire_later
from penstock.archive.encoder import ObjectDecoder
from penstock.archive.identity import check_halves, identity_key, marked, take_over
from penstock.archive.objects import choose, has_any, stored_objects, undescribed
from penstock.model.errors import ArchiveConflict, Damaged, FormatError
from penstock.storage.metadata import Leases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.archive.catalog import Catalog
    from penstock.archive.format import Descriptor
    from penstock.storage.metadata import Lease
    from penstock.storage.objects import ObjectInfo

_LOG = logging.getLogger(__name__)
_TOGETHER = 20


async def rebuild_descriptors(catalog: Catalog, lease: Lease) -> tuple[list[Descriptor], list[str]]:
    """Reads every object and describes those that follow each other; also returns what it left.

    ArchiveConflict: the metadata know the archive. Objects that cannot be read to their end, and
    first attempts that a later object covers, are left alone. Safe to repeat after an interruption:
    descriptors without the archive's id are what an earlier attempt left, and stay.
    """
    if await catalog.metadata.get(identity_key(catalog)) is not None:
        raise ArchiveConflict(f"{catalog.path} has descriptors; nothing was changed")
    if not await has_any(catalog.objects, catalog.objects_prefix):
        return [], []
    mark = await take_over(catalog, lease)
    found, unreadable = await _described(catalog)
    chosen = choose(found)
    # The newest first: what is interrupted does not look like a shorter archive to go on with.
    await _describe(catalog, lease, chosen[::-1])
    # The id is what makes them an archive: every descriptor is there before it.
    await lease.commit({identity_key(catalog): mark.identity.encode()})
    kept = {one.object_id for one in chosen}
    return chosen, unreadable + [one.object_id for one in found if one.object_id not in kept]


async def rebuild_archive(catalog: Catalog, owner: str) -> tuple[list[Descriptor], list[str]]:
    """For who has no lease of the partition: takes it for so long, or LeaseHeld.

    Metadata that know the archive get what they lack behind their newest descriptor;
    ArchiveConflict where they lack nothing, or are of another archive.
    """
    lease = await acquire_later(catalog, Leases(catalog.metadata), owner)
    try:
        entry = await catalog.metadata.get(identity_key(catalog))
        if entry is not None:
            check_halves(catalog, entry.data, await marked(catalog))
            if made := await adopt(catalog, lease, await catalog.last(), sys.maxsize):
                return made, []
        return await rebuild_descriptors(catalog, lease)
    finally:
        await lease.release()


async def adopt(
    catalog: Catalog, lease: Lease, last: Descriptor | None, end: int
) -> list[Descriptor]:
    """Describes what was uploaded behind the newest descriptor and ends at `end` or before.

    For a log that begins at `end` and so cannot give those messages any more: an owner that lost
    its disk uploaded them and could not say so, or the metadata are older than the objects.
    """
    behind = [one async for one in undescribed(catalog, last) if one.end_offset <= end]
    found: list[Descriptor] = []
    for one in choose(behind, last.end_offset if last is not None else 0):
        try:
            found.append(await describe_object(catalog, one.info))
        except FormatError as error:
            _LOG.error("%s: not in the archive: %s", catalog.topic, error)
    await _describe(catalog, lease, found)
    return found


async def _describe(catalog: Catalog, lease: Lease, found: Sequence[Descriptor]) -> None:
    standing = {one.start_offset for one in await catalog.all()}
    new = [one for one in found if one.start_offset not in standing]
    for start in range(0, len(new), _TOGETHER):
        some = new[start : start + _TOGETHER]
        puts = {
            catalog.descriptor_key(one.start_offset): fmt.encode_descriptor(one) for one in some
        }
        await lease.commit(puts, conditions=dict.fromkeys(puts, None))


async def describe_object(catalog: Catalog, info: ObjectInfo) -> Descriptor:
    """The descriptor of an object, from its bytes alone. Damaged: it cannot be read to its end."""
    decoder = ObjectDecoder()
    index: list[tuple[int, int]] = []
    ranges: list[tuple[int, int]] = []
    async for piece in catalog.objects.stream(info.key):
        for head, _ in decoder.feed(piece):
            index.append((head.first_offset, decoder.position))
            ranges.append((head.first_offset, head.end_offset))
    header = decoder.header
    if header is None or decoder.waiting_bytes or decoder.position != info.size:
        raise Damaged(f"{info.key} ends before it should")
    return fmt.Descriptor(
        object_id=info.key.removeprefix(catalog.objects_prefix),
        start_offset=header.start_offset,
        end_offset=header.end_offset,
        size=info.size,
        etag=info.version.etag,
        checksum=f"crc32:{decoder.checksum:08x}",
        created_at=info.modified.isoformat(timespec="milliseconds"),
        completed=True,
        offset_index=tuple(index),
        epoch=header.epoch,
        log_id=str(header.log_id),
        messages=sum(end - first for first, end in ranges),
        compression="zstd" if header.flags & fmt.ZSTD else None,
        lost=tuple(_between(ranges, header)),
        source=None if header.source is None else str(header.source),
    )


async def _described(catalog: Catalog) -> tuple[list[Descriptor], list[str]]:
    found, unreadable = [], []
    async for one in stored_objects(catalog):
        try:
            found.append(await describe_object(catalog, one.info))
        except FormatError:
            unreadable.append(one.info.key.removeprefix(catalog.objects_prefix))
    return found, unreadable


def _between(ranges: list[tuple[int, int]], header: fmt.Header) -> list[tuple[int, int]]:
    """What of the header's range is in no block."""
    ends = [header.start_offset, *(end for _, end in ranges)]
    firsts = [*(first for first, _ in ranges), header.end_offset]
    return [(end, first) for end, first in zip(ends, firsts, strict=True) if end < first]
