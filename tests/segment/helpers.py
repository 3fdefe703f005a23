"""What the segment's tests share."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.model.settings import SegmentSettings
from penstock.model.slots import SlotTable
from penstock.segment import OpenSegment, SegmentInfo, SegmentReader, segment_name, write_segment
from penstock.storage import LocalFiles

if TYPE_CHECKING:
    from penstock.storage.files import Files

STORE_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
SEALED_AT_NS = 1_735_689_600_000_000_000
SETTINGS = SegmentSettings()
TABLE = SlotTable(names={0: "ROOT", 1: "CHILD"}, roots=frozenset({0}), event_times={0: "time"})
SEQ = 7


def fill(
    bundles: Iterable[Bundle | Mapping[int, pa.RecordBatch]],
    settings: SegmentSettings = SETTINGS,
    slots: SlotTable = TABLE,
) -> OpenSegment:
    """An open segment with these bundles, each of two messages, from offset 100 on."""
    segment = OpenSegment(settings, slots)
    for number, slots_or_bundle in enumerate(bundles):
        bundle = slots_or_bundle if isinstance(slots_or_bundle, Bundle) else Bundle(slots_or_bundle)
        offset = 100 + 2 * number
        segment.add(bundle, first_offset=offset, messages=2, ingested_at_ns=1000 + number)
    return segment


def seal(
    folder: Path,
    segment: OpenSegment,
    settings: SegmentSettings = SETTINGS,
    slots: SlotTable = TABLE,
    files: Files | None = None,
) -> SegmentInfo:
    """Writes segment SEQ into the folder."""
    return write_segment(
        files or LocalFiles(),
        folder,
        SEQ,
        STORE_ID,
        segment,
        sealed_at_ns=SEALED_AT_NS,
        settings=settings,
        slots=slots,
    )


def sealed(
    folder: Path,
    bundles: Iterable[Bundle | Mapping[int, pa.RecordBatch]],
    settings: SegmentSettings = SETTINGS,
    slots: SlotTable = TABLE,
) -> SegmentReader:
    """A reader of a segment with these bundles."""
    seal(folder, fill(bundles, settings, slots), settings, slots)
    return SegmentReader.open(LocalFiles(), folder / segment_name(SEQ))


def column(*arrays: pa.Array, name: str = "d") -> list[dict[int, pa.RecordBatch]]:
    """Bundles whose slot 0 has one column: the array."""
    return [{0: pa.record_batch([array], names=[name])} for array in arrays]


def values_of(reader: SegmentReader, index: int) -> dict[int, dict[str, list[object]]]:
    """The contents of a bundle as Python values."""
    return contents(reader.bundle(index).bundle)


def contents(bundle: Bundle) -> dict[int, dict[str, list[object]]]:
    """Slots, columns and values, whatever the order and types of the columns."""
    return {slot: batch.to_pydict() for slot, batch in bundle.slots.items()}


def flipped(data: bytes, bit: int) -> bytes:
    """The bytes with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
