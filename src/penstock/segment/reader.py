"""Reads a sealed segment: any bundle, any of its slots, or a slot of all bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.model.errors import Damaged, InvalidArgument
from penstock.segment.inventory import StoredBundle
from penstock.segment.schemas import conform, families
from penstock.segment.stream_reader import StreamReader
from penstock.segment.tables import ManifestEntry, Ref, decode_segment
from penstock.segment.verify import BadPart, find_damage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from penstock.storage.files import Files


class SegmentReader:
    """A segment as memory. Safe for several threads; outlives the removal of the file.

    Nothing is read before it is asked for, and nothing is decoded before its CRC was verified,
    each part once. Batches are memory of the file: they keep it mapped for as long as they live.
    """

    def __init__(self, data: memoryview, name: str) -> None:
        """`data` is the whole file; `open` is the usual way."""
        header, trailer, footer = decode_segment(data)
        self._data = data
        self._trailer = trailer
        self._footer = footer
        self._families: dict[int, tuple[list[pa.Schema], dict[int, int]]] = {}
        self._messages = footer.schemas()
        self.name: Final = name
        """What the file was called when it was opened."""
        self.version: Final = trailer.version
        self.store_id: Final = header.store_id
        self.info: Final = trailer.info
        self.streams: Final = tuple(footer.streams())
        """The stream directory."""
        self.slots: Final = tuple(sorted({entry.slot for entry in self.streams}))
        """Every slot that a bundle of the segment has."""
        self._readers = [StreamReader(data, footer, entry) for entry in self.streams]

    @classmethod
    def open(cls, files: Files, path: Path) -> SegmentReader:
        """Maps the file and verifies what it says of itself; Damaged or UnsupportedVersion."""
        try:
            return cls(files.map(path), path.name)
        except Damaged as error:
            raise Damaged(f"{path.name}: {error}") from None

    def __len__(self) -> int:
        """How many bundles it holds."""
        return self.info.bundles

    # --- bundles -------------------------------------------------------------------------------

    def manifest(self, index: int) -> ManifestEntry:
        """What the bundle is and where its slots are; no data are read."""
        if not 0 <= index < self.info.bundles:
            raise IndexError(f"{self.name} has no bundle {index}")
        return self._footer.manifest(index)

    def bundle(self, index: int, slots: Collection[int] | None = None) -> StoredBundle:
        """The bundle, or only these slots of it; others are not touched."""
        first_offset, messages, items, ingested_at_ns, refs = self.manifest(index)
        batches = {ref.slot: self._batch(ref) for ref in refs if slots is None or ref.slot in slots}
        bundle = Bundle.trusted(batches, items)
        return StoredBundle(bundle, first_offset, messages, ingested_at_ns, index)

    def _batch(self, ref: Ref) -> pa.RecordBatch:
        if ref.stream >= len(self.streams) or self.streams[ref.stream].slot != ref.slot:
            raise Damaged(f"{self.name}: slot {ref.slot} has no stream {ref.stream}")
        try:
            return self._readers[ref.stream].batch(ref.chunk)
        except Damaged as error:
            raise Damaged(f"{self.name}: {error}") from error.__cause__

    # --- slots ---------------------------------------------------------------------------------

    def schemas(self, slot: int) -> list[pa.Schema]:
        """The slot's representative schemas: every column of its batches, as wide as the widest.

        More than one only where a column has types without a widest one, as int64 and double.
        """
        return self._of(slot)[0]

    def schema(self, slot: int) -> pa.Schema:
        """The one that there mostly is; InvalidArgument where there are several."""
        schemas = self.schemas(slot)
        if len(schemas) > 1:
            raise InvalidArgument(
                f"{self.name}: columns of slot {slot} have types without a widest one; "
                f"its batches have {len(schemas)} schemas"
            )
        return schemas[0]

    def batches(self, slot: int) -> Iterator[pa.RecordBatch]:
        """The slot's batches in the order of bundles, each with a representative schema."""
        schemas, family_of = self._of(slot)
        for index in range(len(self)):
            for ref in self._footer.manifest(index).refs:
                if ref.slot == slot:
                    yield conform(self._batch(ref), schemas[family_of[ref.stream]])

    def read_all(self, slot: int) -> pa.Table:
        """All rows of the slot; InvalidArgument where they have no schema in common."""
        return pa.Table.from_batches(self.batches(slot), self.schema(slot))

    def _of(self, slot: int) -> tuple[list[pa.Schema], dict[int, int]]:
        """The representative schemas, and which of them each stream has."""
        if slot not in self._families:
            streams = [entry.id for entry in self.streams if entry.slot == slot]
            if not streams:
                raise KeyError(f"{self.name} has no slot {slot}")
            if slot in self._messages:
                schema = pa.ipc.read_schema(pa.py_buffer(self._messages[slot]))
                self._families[slot] = [schema], dict.fromkeys(streams, 0)
            else:
                found, members = families(self._readers[each].schema() for each in streams)
                self._families[slot] = found, dict(zip(streams, members, strict=True))
        return self._families[slot]

    # --- damage --------------------------------------------------------------------------------

    def verify(self) -> list[BadPart]:
        """Reads and decodes everything; what is damaged, in the order of the file."""
        return find_damage(self._data, self._trailer, self._footer, self._readers)
