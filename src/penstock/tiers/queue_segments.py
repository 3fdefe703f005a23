"""The queue as a source: what a batch has for one topic is a segment of that topic.

A batch of the queue holds requests of many topics. Its sequence is the `segment_seq` of all of
them, and the offset of a request is `sequence * 2**24` and its place in the batch.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from penstock.model.errors import (
    BatchDamaged,
    BatchMissing,
    Damaged,
    InvalidArgument,
    OffsetUnavailable,
    PenstockError,
    UnsupportedVersion,
)
from penstock.model.positions import QUEUE_PARTITION, SourcePartition
from penstock.model.topics import Topic
from penstock.otel.signals import Signal
from penstock.queue import Inspector, QueueSettings, fetch_batch
from penstock.queue.blocking import run_blocking
from penstock.queue.entry import Entry, Extent
from penstock.queue.otlp import decode_origin
from penstock.storage.objects import open_objects
from penstock.tiers.requests import RequestBundles
from penstock.tiers.segments import Chosen, Segment, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.model.positions import Positions, Reached
    from penstock.queue import QueueStatus
    from penstock.queue.otlp import Origin
    from penstock.storage.objects import ObjectStore

NO_TOPIC: Final = "//traces"
"""Of requests whose metadata cannot be understood: whoever reads traces hears of them."""
NO_ID: Final = "0" * 32
OFFSETS_PER_BATCH: Final = 2**24
_MS: Final = 1_000_000


class QueueSegments:
    """The batches that wait in a queue. Fences nobody."""

    def __init__(
        self,
        url: str,
        options: Mapping[str, str],
        manifest_path: str,
        chosen: Chosen | None = None,
    ) -> None:
        self._url = url
        self._chosen = chosen or Chosen()
        self._options = dict(options)
        self._settings = QueueSettings(manifest_path=manifest_path)
        self._known: dict[int, list[Segment]] = {}
        self._source: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Workers open a store of their own."""
        left = {name: value for name, value in self.__dict__.items() if name != "_objects"}
        return {**left, "_known": {}}

    @cached_property
    def _objects(self) -> ObjectStore:
        return open_objects(self._url, self._options)

    @property
    def source(self) -> str:
        """The id of the queue; of one without, zeros: its sequences alone tell it apart."""
        return run_blocking(self._identity())

    def since(self, positions: Positions) -> list[Segment]:
        """Reads the entries that it has not listed before; those that were dequeued are left out.

        What it has listed it lists again while somebody is before it.
        """
        run_blocking(self._look())
        listed = [each for segments in self._known.values() for each in segments]
        return sorted(
            (each for each in listed if self._has(each) and not _is_before(each, positions)),
            key=lambda each: (each.place, each.segment_seq),
        )

    def waiting(self) -> dict[int, list[Segment]]:
        """What each sequence that is not dequeued has for each topic, in order.

        Reads the entries that it has not listed before.
        """
        run_blocking(self._look())
        return self._known

    def _has(self, segment: Segment) -> bool:
        return segment.state is not State.SEALED or self._chosen.has(
            Topic.parse(segment.place.topic)
        )

    async def status(self) -> QueueStatus:
        """Of the queue."""
        return await Inspector(self._objects, self._settings).status()

    async def _identity(self) -> str:
        self._source = self._source or (await self.status()).queue_id or NO_ID
        return self._source

    async def _look(self) -> None:
        inspector, source = Inspector(self._objects, self._settings), await self._identity()
        begin = max(self._known, default=-1) + 1
        async for entry in inspector.entries(begin):
            self._known[entry.sequence] = segments_of(entry, source)
        first = (await inspector.status()).first_sequence
        self._known = {seq: held for seq, held in self._known.items() if seq >= first}

    def open(self, segment: Segment) -> RequestBundles:
        """Fetches the batch, verifies it and decodes what is this topic's."""
        detail = json.loads(segment.detail or "{}")
        extent = Extent(*detail["extent"]) if detail["extent"] else None
        entry = Entry(segment.segment_seq, segment.path, (), extent)
        try:
            batch = run_blocking(fetch_batch(self._objects, entry))
        except BatchMissing as error:
            raise OffsetUnavailable(str(error), earliest=segment.end_offset or 0) from None
        except BatchDamaged as error:
            raise Damaged(str(error)) from None
        if segment.signal is None:
            raise InvalidArgument(f"{segment.path} carries no signal")
        base = segment.segment_seq * OFFSETS_PER_BATCH
        requests = [
            (base + index, batch.entries[index])
            for start, end in detail["ranges"]
            for index in range(start, len(batch.entries) if end is None else end)
        ]
        return RequestBundles(segment.path, segment.signal, requests)

    def gone(self, key: SourcePartition, start: Reached, end_offset: int) -> Segment:
        """Never needed: a topic that is not in a batch has lost nothing."""
        raise PenstockError(f"{key}: {start.offset} to {end_offset} of the queue are gone")

    def arrived_ns(self, segment: Segment) -> int:
        """When a producer took its first message."""
        return segment.sealed_at_ns


def segments_of(entry: Entry, source: str) -> list[Segment]:
    """What a batch has for each topic; what nobody understands is a damaged segment of none."""
    ranges: dict[Origin | str, list[list[int | None]]] = {}
    times: dict[Origin | str, int] = {}
    ends = [item.start_index for item in entry.metadata[1:]] + [None]
    for item, end in zip(entry.metadata, ends, strict=True):
        try:
            origin: Origin | str = decode_origin(item.payload)
        except (Damaged, UnsupportedVersion) as error:
            origin = f"the batch {entry.location} of sequence {entry.sequence}: {error}"
        held = ranges.setdefault(origin, [])
        if held and held[-1][1] == item.start_index:
            held[-1][1] = end
        else:
            held.append([item.start_index, end])
        times.setdefault(origin, item.ingestion_time_ms)
    share = (entry.extent.batch_bytes if entry.extent else 0) // max(len(ranges), 1)
    return [
        _segment(source, entry, origin, held, times[origin], share)
        for origin, held in ranges.items()
    ]


def _segment(
    source: str,
    entry: Entry,
    origin: Origin | str,
    ranges: list[list[int | None]],
    time_ms: int,
    size: int,
) -> Segment:
    extent = entry.extent
    detail = {
        "ranges": ranges,
        "extent": extent and [extent.batch_bytes, extent.record_count, extent.batch_crc],
    }
    made = Segment(
        place=SourcePartition(source, NO_TOPIC, QUEUE_PARTITION),
        segment_seq=entry.sequence,
        path=entry.location,
        first_offset=None,  # a topic need not be in every batch
        end_offset=(entry.sequence + 1) * OFFSETS_PER_BATCH,
        bytes=size,
        bundles=0,
        items=0,
        sealed_at_ns=time_ms * _MS,
        signal=Signal.TRACES,
        detail=json.dumps(detail),
    )
    if isinstance(origin, str):
        return replace(made, state=State.DAMAGED, problem=origin)
    place = made.place._replace(topic=str(origin.topic))
    return replace(made, place=place, signal=origin.signal)


def _is_before(segment: Segment, positions: Positions) -> bool:
    at = positions.get(segment.place.unsourced)
    return at is not None and segment.is_behind(at)
