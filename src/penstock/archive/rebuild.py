"""Makes descriptors again from the objects, where the metadata was lost."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from penstock.archive import format as fmt
from penstock.archive.encoder import ObjectDecoder
from penstock.archive.identity import identity_key, marked_id
from penstock.model.errors import ArchiveConflict, Damaged, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.archive.catalog import Catalog
    from penstock.archive.format import Descriptor
    from penstock.storage.metadata import Lease
    from penstock.storage.objects import ObjectInfo

_TOGETHER = 20


async def rebuild_descriptors(catalog: Catalog, lease: Lease) -> tuple[list[Descriptor], list[str]]:
    """Reads every object and describes those that follow each other; also returns what it left.

    ArchiveConflict: there are descriptors already. Objects that cannot be
    read to their end, and first attempts that a later object covers, are left alone. Safe to repeat
    after an interruption that left no descriptor; the archive is usable when all are there.
    """
    if await catalog.first() is not None:
        raise ArchiveConflict(f"{catalog.path} has descriptors; nothing was changed")
    identity = await marked_id(catalog)
    if identity is None:
        return [], []
    found, unreadable = await _described(catalog)
    chosen = choose(found)
    # The newest first: what is interrupted does not look like a shorter archive to go on with.
    for start in range(0, len(chosen), _TOGETHER):
        some = chosen[::-1][start : start + _TOGETHER]
        puts = {
            catalog.descriptor_key(one.start_offset): fmt.encode_descriptor(one) for one in some
        }
        await lease.commit(puts, conditions=dict.fromkeys(puts, None))
    await lease.commit({identity_key(catalog): identity.encode()})
    kept = {one.object_id for one in chosen}
    return chosen, unreadable + [one.object_id for one in found if one.object_id not in kept]


def choose(found: Iterable[Descriptor]) -> list[Descriptor]:
    """The objects that follow each other, from the lowest offset on.

    Of several that begin together the one of the latest epoch, then the longest: what an attempt
    without an answer left is always earlier or shorter. Where none follows the next higher does.
    """
    by_start: dict[int, list[Descriptor]] = defaultdict(list)
    for one in found:
        by_start[one.start_offset].append(one)
    chosen: list[Descriptor] = []
    position = 0
    for start in sorted(by_start):
        if start >= position:
            best = max(by_start[start], key=lambda one: (one.epoch, one.end_offset))
            chosen.append(best)
            position = best.end_offset
    return chosen


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
    async for info in catalog.objects.list(catalog.objects_prefix):
        name = info.key.removeprefix(catalog.objects_prefix)
        if fmt.parse_object_id(name) is None:
            continue
        try:
            found.append(await describe_object(catalog, info))
        except FormatError:
            unreadable.append(name)
    return found, unreadable


def _between(ranges: list[tuple[int, int]], header: fmt.Header) -> list[tuple[int, int]]:
    """What of the header's range is in no block."""
    ends = [header.start_offset, *(end for _, end in ranges)]
    firsts = [*(first for first, _ in ranges), header.end_offset]
    return [(end, first) for end, first in zip(ends, firsts, strict=True) if end < first]
