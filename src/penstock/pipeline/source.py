"""The format `penstock`: all tiers for `spark.read`, sealed segments for `spark.readStream`.

`penstock.pipeline.options` lists the options. There is a task for each segment, small ones share.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.lake.schemas import TABLES, signal_of
from penstock.model.errors import Damaged, InvalidArgument, OffsetUnavailable
from penstock.pipeline.batches import grouped
from penstock.pipeline.descriptors import DESCRIPTORS
from penstock.pipeline.filters import Predicate
from penstock.pipeline.options import SourceOptions
from penstock.pipeline.ranges import TIME_COLUMNS, origin_ranges, time_ranges
from penstock.pipeline.reading import DescriptorReading, TableReading
from penstock.pipeline.stream import SegmentStreamReader
from penstock.pipeline.union import UnionReader
from penstock.tiers.segments import Chosen, DirectorySegments, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from penstock.pipeline.reading import Reading
    from penstock.tiers.segments import Segment, Segments

FORMAT: Final = "penstock"


class PenstockSource(DataSource):
    """`spark.read.format("penstock").option("table", "spans").load(DATA)`.

    Batch: what every tier has when the query is planned, each row once. Stream: sealed segments
    from `startingOffsets` on, each once, in the order of each partition; batches are the same when
    they are run again.
    """

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return FORMAT

    def schema(self) -> StructType:
        """All columns; `.schema(…)` with some of them spares reading the others."""
        return from_arrow_schema(_columns(self._parsed()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        options = self._parsed()
        segments = _segments(options)
        reading = _reading(options, segments, schema)
        sealed = BatchReader(segments, reading, options)
        if options.source != "directory" or not isinstance(reading, TableReading):
            return sealed
        return UnionReader(reading, options, sealed.may_hold)

    def streamReader(self, schema: StructType) -> SegmentStreamReader:  # noqa: N802 - Spark's name
        """For `spark.readStream`."""
        options = self._parsed()
        segments = _segments(options)
        return SegmentStreamReader(segments, _reading(options, segments, schema), options)

    def _parsed(self) -> SourceOptions:
        return SourceOptions.parse(self.options)


class BatchReader(DataSourceReader):
    """Reads what is sealed now."""

    def __init__(self, segments: Segments, reading: Reading, options: SourceOptions) -> None:
        self._segments = segments
        self._reading = reading
        self._options = options

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Takes those that Arrow can decide; the others are Spark's."""
        self._reading.predicate = Predicate(self._reading.schema, filters)
        taken = {id(each) for each in self._reading.predicate.taken}
        return (each for each in filters if id(each) not in taken)

    def partitions(self) -> list[InputPartition]:
        """A partition for each segment that may hold what is asked for; small ones share."""
        chosen = [each for each in self._segments.since({}) if self.may_hold(each)]
        groups = grouped(chosen, self._options.partition_bytes)
        return [InputPartition(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task. Spark gives a partition without segments where there are none."""
        return self._reading.read(partition.value or [])

    def may_hold(self, segment: Segment) -> bool:
        """Whether a segment may have rows that are asked for."""
        predicate = self._reading.predicate
        if self._options.rows != "table":
            return True
        if not predicate.may_hold(origin_ranges(segment)):
            return False
        if predicate.columns.isdisjoint(TIME_COLUMNS) or segment.state is not State.SEALED:
            return True
        if not isinstance(self._segments, DirectorySegments):
            return True  # looking would be reading
        try:
            reader = self._segments.open(segment)
        except (Damaged, OffsetUnavailable):
            return True  # whoever reads it says so
        return predicate.may_hold(time_ranges(reader, self._options.table))


def _columns(options: SourceOptions) -> pa.Schema:
    return TABLES[options.table] if options.rows == "table" else DESCRIPTORS


def _segments(options: SourceOptions) -> Segments:
    signal = signal_of(options.table) if options.rows == "table" else None
    chosen = Chosen(options.topics, options.namespaces, signal)
    # What reads object storage is imported only where it is wanted: it takes longer than planning.
    if options.source == "queue":
        from penstock.tiers.queue_segments import QueueSegments

        return QueueSegments(options.path, options.objects, options.manifest, chosen)
    if options.source == "archive":
        from penstock.tiers.archive_segments import ArchiveSegments

        places = (options.path, options.objects, options.metadata, options.root)
        return ArchiveSegments(*places, chosen)
    return DirectorySegments(Path(options.path), options.topics, options.namespaces, signal)


def _reading(options: SourceOptions, segments: Segments, wanted: StructType) -> Reading:
    schema = to_arrow_schema(wanted, timezone="UTC")
    _check_columns(schema, _columns(options))
    predicate = Predicate(schema)
    if options.rows != "table":
        return DescriptorReading(schema, predicate)
    return TableReading(segments, options.table, schema, predicate, options.fail_on_data_loss)


def _check_columns(wanted: pa.Schema, columns: pa.Schema) -> None:
    for field in wanted:
        if field.name not in columns.names:
            raise InvalidArgument(f"there is no column {field.name}")
        type_ = columns.field(field.name).type
        if not type_.equals(field.type):
            raise InvalidArgument(f"the column {field.name} is {type_}, not {field.type}")
