"""The segment that is being filled, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from penstock.model.bundle import Bundle
from penstock.model.errors import InvalidBundle
from penstock.segment.dictionaries import can_share
from penstock.segment.gauge import StreamGauge
from penstock.segment.inventory import StoredBundle
from penstock.segment.schemas import fingerprint
from penstock.segment.tables import ManifestEntry, Ref

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.model.settings import SegmentSettings
    from penstock.model.slots import SlotTable


_Keyed: TypeAlias = "tuple[int, pa.RecordBatch, tuple[int, bytes]]"


@dataclass(slots=True)
class OpenStream:
    """The batches of one slot that have one schema, with their columns in one order."""

    slot: int
    fingerprint: bytes
    schema: pa.Schema
    gauge: StreamGauge
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def ordered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its columns in the stream's order."""
        names = self.schema.names
        return batch if batch.schema.names == names else batch.select(names)


class OpenSegment:
    """Bundles that wait to be sealed together, grouped by stream.

    One thread adds. Others may read what is in it meanwhile: a bundle shows when it is whole.
    """

    def __init__(self, settings: SegmentSettings, slots: SlotTable) -> None:
        self._settings = settings
        self._slot_table = slots
        self._streams: list[OpenStream] = []
        self._shared: dict[tuple[int, bytes], int] = {}
        self._stored: list[StoredBundle] = []
        self._manifest: list[ManifestEntry] = []
        self._latest: tuple[Bundle, list[_Keyed]] | None = None
        self._accepted: Bundle | None = None
        self.nbytes = 0
        """Memory that the batches hold."""

    # --- adding --------------------------------------------------------------------------------

    def accepts(self, bundle: Bundle) -> bool:
        """Whether the bundle can be sealed together with what is there; always, when empty.

        Not with too many streams, nor where a dictionary would outgrow its limit.
        """
        if not self._stored or self._accepts(bundle):
            self._accepted = bundle
            return True
        return False

    def _accepts(self, bundle: Bundle) -> bool:
        new_streams = 0
        for _, batch, key in self._keyed(bundle):
            number = self._shared.get(key)
            if number is None:
                new_streams += 1
            else:
                stream = self._streams[number]
                if not stream.gauge.fits(stream.ordered(batch)):
                    return False
        return len(self._streams) + new_streams <= self._settings.max_streams

    def _keyed(self, bundle: Bundle) -> list[_Keyed]:
        """The bundle's batches with what their streams are found by. Remembers the latest."""
        if self._latest is None or self._latest[0] is not bundle:
            keyed = [
                (slot, batch, (slot, fingerprint(batch.schema)))
                for slot, batch in bundle.slots.items()
            ]
            self._latest = bundle, keyed
        return self._latest[1]

    def add(self, bundle: Bundle, *, first_offset: int, messages: int, ingested_at_ns: int) -> None:
        """Takes the bundle. InvalidBundle, and nothing changes, where `accepts` would not."""
        if self._accepted is not bundle and not self.accepts(bundle):
            raise InvalidBundle("the bundle does not fit into the open segment; seal it first")
        keyed = self._keyed(bundle)
        self._latest = self._accepted = None
        items = self._slot_table.count_items(bundle)
        if bundle.items is None:
            bundle = Bundle(bundle.slots, items=items)
        refs = tuple(self._add_batch(*batch) for batch in keyed)
        self._manifest.append(ManifestEntry(first_offset, messages, items, ingested_at_ns, refs))
        self.nbytes += sum(batch.get_total_buffer_size() for _, batch, _ in keyed)
        index = len(self._stored)
        # Invariant: the bundle shows to readers last, when all else is in place.
        self._stored.append(StoredBundle(bundle, first_offset, messages, ingested_at_ns, index))

    def _add_batch(self, slot: int, batch: pa.RecordBatch, key: tuple[int, bytes]) -> Ref:
        number = self._shared.get(key)
        if number is None:
            number = self._new_stream(key, batch.schema)
        stream = self._streams[number]
        ordered = stream.ordered(batch)
        stream.gauge.add(ordered)
        stream.batches.append(ordered)
        return Ref(slot, number, len(stream.batches) - 1)

    def _new_stream(self, key: tuple[int, bytes], schema: pa.Schema) -> int:
        slot, digest = key
        number = len(self._streams)
        gauge = StreamGauge(schema, self._settings.dictionary_values)
        self._streams.append(OpenStream(slot, digest, schema, gauge))
        if can_share(schema):
            self._shared[key] = number
        return number

    def split(self, bundles: int | None) -> tuple[OpenSegment, OpenSegment]:
        """Its first bundles and the others; itself and an empty one, where that is all of them."""
        rest = OpenSegment(self._settings, self._slot_table)
        if bundles is None or bundles >= self.bundles:
            return self, rest
        first = OpenSegment(self._settings, self._slot_table)
        for number, stored in enumerate(self._stored):
            part = first if number < bundles else rest
            part.add(
                stored.bundle,
                first_offset=stored.first_offset,
                messages=stored.messages,
                ingested_at_ns=stored.ingested_at_ns,
            )
        return first, rest

    # --- what is there -------------------------------------------------------------------------

    @property
    def bundles(self) -> int:
        return len(self._stored)

    @property
    def first_offset(self) -> int:
        """The offset of the first message; 0 when empty."""
        return self._stored[0].first_offset if self._stored else 0

    @property
    def end_offset(self) -> int:
        """One past the last message; 0 when empty."""
        return self._stored[-1].end_offset if self._stored else 0

    @property
    def streams(self) -> Sequence[OpenStream]:
        """The streams in the order in which they appeared."""
        return self._streams

    @property
    def manifest(self) -> Sequence[ManifestEntry]:
        """The bundles and where their slots are."""
        return self._manifest

    def is_full(self) -> bool:
        """Whether it has reached its size, its most streams, or the limit of a dictionary."""
        return (
            self.nbytes >= self._settings.target_bytes
            or len(self._streams) >= self._settings.max_streams
            or any(stream.gauge.is_at_limit() for stream in self._streams)
        )

    def __iter__(self) -> Iterator[StoredBundle]:
        """The bundles that are there now, as they were added."""
        return islice(self._stored, len(self._stored))
