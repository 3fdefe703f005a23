"""The archive as a source: an object of it is a segment, numbered by its first offset."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Final

from penstock.archive.catalog import Catalog
from penstock.archive.contents import all_partitions, whole
from penstock.archive.format import decode_descriptor, encode_descriptor
from penstock.archive.reader import read_object
from penstock.model.errors import (
    Damaged,
    InvalidArgument,
    ObjectMissing,
    OffsetUnavailable,
)
from penstock.model.positions import SourcePartition
from penstock.model.topics import Topic
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from penstock.tiers.requests import RequestBundles
from penstock.tiers.segments import Chosen, Segment, State, signal_of_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.archive.format import Descriptor
    from penstock.model.positions import Positions, Reached
    from penstock.storage.metadata import Metadata
    from penstock.storage.objects import ObjectStore

_ATTEMPTS: Final = 3


class ArchiveSegments:
    """The objects that an archive has. Needs no lease: whoever reads may read beside its owner."""

    def __init__(
        self,
        url: str,
        options: Mapping[str, str],
        metadata_url: str,
        root: str,
        chosen: Chosen | None = None,
    ) -> None:
        self._chosen = chosen or Chosen()
        self._url = url
        self._options = dict(options)
        self._metadata_url = metadata_url
        self._root = root

    def since(self, positions: Positions) -> list[Segment]:
        """Reads every descriptor, and each object that has none: nothing is left out.

        ArchiveConflict: the metadata are not those of the objects. InvalidArgument: there is
        nothing in either store.
        """
        listed = asyncio.run(self._listed())
        return [each for each in listed if not _is_before(each, positions)]

    def open(self, segment: Segment) -> RequestBundles:
        """Fetches the object, verifies every checksum, and decodes it."""
        if segment.signal is None or segment.detail is None:
            raise InvalidArgument(f"{segment.path} carries no signal")
        descriptor = decode_descriptor(segment.detail.encode())
        messages = asyncio.run(self._messages(segment, descriptor))
        return RequestBundles(segment.path, segment.signal, messages, lost=descriptor.lost)

    def gone(self, key: SourcePartition, start: Reached, end_offset: int) -> Segment:
        """Retention took it, or it was never archived."""
        problem = f"messages {start.offset} to {end_offset - 1} of {key} are not in the archive"
        return Segment(
            place=key,
            segment_seq=start.segment_seq + 1,
            path=str(key),
            first_offset=start.offset,
            end_offset=end_offset,
            bytes=0,
            bundles=0,
            items=0,
            sealed_at_ns=0,
            signal=signal_of_topic(Topic.parse(key.topic)),
            state=State.GONE,
            problem=problem,
        )

    def arrived_ns(self, segment: Segment) -> int:
        """When the object was made: soon after its messages came."""
        if segment.detail is None:
            return 0
        created_at = decode_descriptor(segment.detail.encode()).created_at
        return int(datetime.fromisoformat(created_at).timestamp() * 1e9)

    async def _listed(self) -> list[Segment]:
        objects, metadata = self._stores()
        try:
            places = await all_partitions(objects, metadata, self._root)
            if not places:
                raise InvalidArgument(f"there is no archive at {self._url}")
            chosen = [place for place in places if self._chosen.has(place[0])]
            found = [
                await whole(Catalog(objects, metadata, *place, root=self._root)) for place in chosen
            ]
            return [_segment(each, one) for each in found for one in await each.all()]
        finally:
            await objects.close()
            await metadata.close()

    async def _messages(self, segment: Segment, descriptor: Descriptor) -> list[tuple[int, bytes]]:
        objects, metadata = self._stores()
        topic = Topic.parse(segment.place.topic)
        catalog = Catalog(objects, metadata, topic, segment.place.partition, root=self._root)
        try:
            return await _read(catalog, descriptor, segment)
        finally:
            await objects.close()
            await metadata.close()

    def _stores(self) -> tuple[ObjectStore, Metadata]:
        metadata = open_metadata(self._metadata_url, create=False)
        return open_objects(self._url, self._options), metadata


async def _read(
    catalog: Catalog, descriptor: Descriptor, segment: Segment
) -> list[tuple[int, bytes]]:
    """A read that brought damage is made again: it may not be the object's fault."""
    for attempt in range(_ATTEMPTS):
        try:
            return [
                (batch.first_offset + number, message)
                async for batch in read_object(catalog, descriptor)
                for number, message in enumerate(batch.messages)
            ]
        except ObjectMissing as error:
            raise OffsetUnavailable(str(error), earliest=segment.end_offset or 0) from None
        except Damaged as error:
            if attempt + 1 == _ATTEMPTS:
                raise Damaged(f"{segment.path}: {error}") from None
    raise AssertionError


def _segment(catalog: Catalog, descriptor: Descriptor) -> Segment:
    source = descriptor.source or descriptor.log_id  # 0.1 said which log it was, and no more
    return Segment(
        place=SourcePartition(source, str(catalog.topic), catalog.partition),
        segment_seq=descriptor.start_offset,
        path=catalog.object_key(descriptor.object_id),
        first_offset=descriptor.start_offset,
        end_offset=descriptor.end_offset,
        bytes=descriptor.size,
        bundles=0,
        items=0,
        sealed_at_ns=0,
        signal=signal_of_topic(catalog.topic),
        detail=encode_descriptor(descriptor).decode(),
    )


def _is_before(segment: Segment, positions: Positions) -> bool:
    at = positions.get(segment.place.unsourced)
    return at is not None and segment.is_behind(at)
