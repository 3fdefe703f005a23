"""The warm tier: sealed segments that the lake does not have yet, mapped and reshaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lake.rows import Origin, row_batches, rows_of
from penstock.model.errors import Damaged, OffsetUnavailable, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from penstock.model.bundle import Bundle
    from penstock.otel.signals import Signal
    from penstock.pipeline.segments import Segment, Segments
    from penstock.segment import SegmentReader


def open_segment(
    source: Segments, segment: Segment, warn: Callable[[str], None]
) -> SegmentReader | None:
    """A mapped file stays readable when it is deleted. None: it is gone, or damaged."""
    try:
        return source.open(segment)
    except OffsetUnavailable:
        return None  # the lake has it by now
    except Damaged as error:
        warn(str(error))
        return None


def warm_rows(
    segment: Segment, reader: SegmentReader, signal: Signal, warn: Callable[[str], None]
) -> list[pa.RecordBatch]:
    """All that can be read of a segment."""
    bundles = list(_bundles(segment, reader, warn))
    try:
        return list(row_batches(bundles, signal))
    except PenstockError:  # of one of them; which one is seen when each is alone
        return [batch for each in bundles for batch in _rows(segment, each, signal, warn)]


def _bundles(
    segment: Segment, reader: SegmentReader, warn: Callable[[str], None]
) -> Iterator[tuple[Bundle, Origin]]:
    for index in range(len(reader)):
        try:
            stored = reader.bundle(index)
        except PenstockError as error:
            warn(f"{segment.path}: bundle {index}: {error}")
            continue
        place = (segment.topic, segment.namespace, segment.partition, stored.first_offset)
        yield stored.bundle, Origin(*place)


def _rows(
    segment: Segment, bundle: tuple[Bundle, Origin], signal: Signal, warn: Callable[[str], None]
) -> list[pa.RecordBatch]:
    try:
        batches: list[pa.RecordBatch] = rows_of(bundle[0], signal, bundle[1]).to_batches()
    except PenstockError as error:
        warn(f"{segment.path}: {error}")
        return []
    return batches
