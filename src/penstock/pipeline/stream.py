"""`spark.readStream`: which segments make a batch. All of it runs in one process beside the driver.

Nothing is kept but Spark's own checkpoint: a position for each partition. What was read may be
deleted only when whoever reads has made it durable, which Spark's `commit` does not say.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from penstock.pipeline.batches import Admission, before, grouped, segments_between
from penstock.pipeline.offsets import (
    decode_offsets,
    encode_offsets,
    ends_after,
    ends_before,
    parse_offsets,
    reached,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstock.pipeline.offsets import Ends
    from penstock.pipeline.options import SourceOptions
    from penstock.pipeline.reading import Reading
    from penstock.tiers.segments import Segments


class SegmentStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the segments of every partition, also of those that are still to come."""

    def __init__(self, segments: Segments, reading: Reading, options: SourceOptions) -> None:
        self._segments = segments
        self._reading = reading
        self._options = options
        self._first: Ends = {}
        self._last: Ends | None = None
        self._newest: Ends = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as those below
        """Where a new stream begins; from the earliest: with nothing that could have changed."""
        start = self._options.starting_offsets
        if start == "latest":
            listed = self._segments.since({})
            self._first = ends_after(ends_before(listed), listed)
        elif start != "earliest":
            self._first = parse_offsets(start)
        return encode_offsets(self._first)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options say; both bounds hold where both are given."""
        admission = self._options.admission
        if admission.max_segments is not None:
            return ReadMaxFiles(admission.max_segments)
        if admission.max_bytes is not None:
            return ReadMaxBytes(admission.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is sealed from now on is left to the next run."""
        self._last = ends_after({}, self._segments.since({}))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the batch that begins at `start` ends; `start` itself where there is nothing."""
        begin = decode_offsets(start)
        listed = self._segments.since(reached(begin))
        self._newest = ends_after(begin, listed)
        if self._last is not None:
            listed = before(listed, self._last)
        elif not self._options.admission.is_due(listed, time.time()):
            return start
        bounded = not isinstance(limit, ReadAllAvailable)
        admission = self._options.admission if bounded else Admission()
        taken = admission.admit(listed)
        return encode_offsets(ends_after(begin, taken, is_first=begin == self._first))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """What was sealed when the last batch was planned; Spark shows it as progress."""
        return encode_offsets(self._newest) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The same segments whenever it is asked; what is gone since stands in for itself."""
        begin, until = decode_offsets(start), decode_offsets(end)
        chosen = segments_between(self._segments, begin, until)
        groups = grouped(chosen, self._options.partition_bytes)
        return [InputPartition(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        return self._reading.read(partition.value or [])

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: it comes late, or never."""
