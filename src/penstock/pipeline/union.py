"""`spark.read` of a data directory: one table over hot, warm and cold, each row once.

What is in which tier, and which rows were sent twice, is decided once, when the query is planned.
Then each file of the lake is a partition, small segments share one, and hot rows go along.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.lake.reader import opened_here
from penstock.lake.settings import LakeSettings
from penstock.model.errors import Damaged, OffsetUnavailable
from penstock.model.topics import Topic
from penstock.pipeline.batches import grouped
from penstock.pipeline.filters import Predicate
from penstock.pipeline.ranges import file_ranges, row_group_ranges
from penstock.pipeline.reading import without
from penstock.tiers.moved import moved_rows
from penstock.tiers.segments import Chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq
    from numpy.typing import NDArray
    from pyspark.sql.datasource import Filter

    from penstock.lake.glance import ColdFile
    from penstock.lake.hashing import Hashes
    from penstock.lake.reader import DataFile
    from penstock.pipeline.filters import Range
    from penstock.pipeline.options import SourceOptions
    from penstock.pipeline.reading import TableReading
    from penstock.tiers.segments import Segment
    from penstock.tiers.shares import Shares

    RowNumbers = NDArray[np.int64]

_LOG = logging.getLogger(__name__)
NO_HASHES: Final = np.zeros((0, 2), np.uint64)


@dataclass(frozen=True, slots=True)
class ColdFileShare:
    """A file of the lake. Pickled to a task."""

    file: ColdFile
    unwanted: RowNumbers | None


@dataclass(frozen=True, slots=True)
class WarmShare:
    """Some segments. By their paths: what does not count, by numbers and by what it is."""

    segments: Sequence[Segment]
    unwanted: Mapping[str, RowNumbers]
    counts: Mapping[str, int]
    repeats: Mapping[str, Hashes]
    since: int
    """The newest commit when it was planned: what the lake has got since is in later ones."""


@dataclass(frozen=True, slots=True)
class HotShare:
    """Rows, as a stream of Arrow."""

    stream: bytes


class UnionReader(DataSourceReader):
    """Reads all tiers as they are when the query is planned."""

    def __init__(
        self,
        reading: TableReading,
        options: SourceOptions,
        may_hold: Callable[[Segment], bool],
    ) -> None:
        self._reading = reading
        self._options = options
        self._segment_may_hold = may_hold

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Takes those that Arrow can decide; the others are Spark's."""
        self._reading.predicate = Predicate(self._reading.schema, filters)
        taken = {id(each) for each in self._reading.predicate.taken}
        return (each for each in filters if id(each) not in taken)

    def partitions(self) -> list[InputPartition]:
        """Those that may hold what is asked for."""
        found = self._looked()
        parts: list[Any] = [
            ColdFileShare(file, found.unwanted.get(file.path))
            for file in found.cold
            if self._reading.predicate.may_hold(file_ranges(file))
        ]
        chosen = Chosen(self._options.topics, self._options.namespaces)
        segments = [
            each
            for each in found.warm
            if chosen.has(Topic.parse(each.place.topic)) and self._segment_may_hold(each)
        ]
        groups = grouped(segments, self._options.partition_bytes)
        parts += [_warm_share(group, found) for group in groups]
        parts += [HotShare(_stream(rows)) for rows in found.hot]
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task. Spark gives a partition without a share where there are none."""
        match partition.value:
            case ColdFileShare() as file:
                return self._chosen(_file_rows(file, self._reading, self._columns()))
            case WarmShare() as share:
                return self._warm(share)
            case HotShare(stream):
                return self._chosen(pa.ipc.open_stream(stream))
        return iter(())

    def _warm(self, share: WarmShare) -> Iterator[pa.RecordBatch]:
        """Each segment where it lies, or where it has gone to since the query was planned."""
        for segment in share.segments:
            try:
                self._reading.segments.open(segment)
                # A segment that is opened stays readable, so that this is raised before any row.
                yield from self._reading.read([segment], share.unwanted)
            except OffsetUnavailable:
                yield from self._chosen(self._moved(segment, share).to_batches())
            except Damaged as error:
                self._reading.lose(error)

    def _moved(self, segment: Segment, share: WarmShare) -> pa.Table:
        root, path = Path(self._options.path), segment.path
        return moved_rows(
            LakeSettings.of(root),
            self._options.table,
            segment,
            since=share.since,
            unwanted=share.repeats.get(path, NO_HASHES),
            count=share.counts.get(path, 0),
        )

    def _looked(self) -> Shares:
        from penstock.tiers.shares import share  # tasks read without it

        options, root = self._options, Path(self._options.path)
        return share(
            root,
            LakeSettings.of(root),
            options.table,
            tiers=options.tiers,
            namespaces=options.namespaces,
            partial=not options.fail_on_data_loss,
            warn=_LOG.warning,
        )

    def _chosen(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of the topics and namespaces that are asked for, with the columns that are."""
        for batch in batches:
            rows = batch
            if self._options.namespaces is not None:
                names = pa.array(sorted(self._options.namespaces), pa.string())
                rows = rows.filter(pc.is_in(rows.column("namespace"), names))
            if self._options.topics is not None:
                rows = rows.filter(_is_topic(rows.column("_topic"), self._options.topics))
            yield from self._reading.fitted(rows)

    def _columns(self) -> list[str]:
        also = ["namespace"] if self._options.namespaces is not None else []
        also += ["_topic"] if self._options.topics is not None else []
        return [*dict.fromkeys([*self._reading.schema.names, *also])]


def _warm_share(group: Sequence[Segment], found: Shares) -> WarmShare:
    paths = [each.path for each in group]
    return WarmShare(
        group,
        {path: found.unwanted[path] for path in paths if path in found.unwanted},
        {path: found.counts[path] for path in paths if path in found.counts},
        {path: found.repeats[path] for path in paths if path in found.repeats},
        max((file.sequence for file in found.cold), default=0),
    )


def _is_topic(topics: pa.Array, wanted: Collection[str]) -> pa.BooleanArray:
    """`/namespace/name`, or `name` in every namespace."""
    found = pc.is_in(topics, pa.array(sorted(wanted), pa.string()))
    for name in wanted:
        if not name.startswith("/"):
            found = pc.or_(found, pc.ends_with(topics, f"/{name}"))
    return found


def _file_rows(
    share: ColdFileShare, reading: TableReading, wanted: list[str]
) -> Iterator[pa.RecordBatch]:
    """Of the row groups that may hold what is asked for, without what does not count."""
    file = share.file
    try:
        with opened_here(file) as data:
            columns = _columns_of(file, data, wanted)
            for number, first in enumerate(_row_group_starts(data.footer)):
                group = data.footer.row_group(number)
                if reading.predicate.may_hold(_stored_ranges(file, group)):
                    batches = data.batches(columns, group.num_rows, [number])
                    yield from without(batches, share.unwanted, first)
    except FileNotFoundError as error:
        reason = f"{file.path} was replaced or expired while it was being read: read again"
        raise OffsetUnavailable(reason) from error
    except Damaged as error:
        reading.lose(error)


def _columns_of(file: ColdFile, data: DataFile, wanted: list[str]) -> pa.Schema:
    if file.columns is not None:
        return file.columns.fields(wanted)
    return pa.schema([field for field in data.held if field.name in wanted])


def _stored_ranges(file: ColdFile, group: pq.RowGroupMetaData) -> dict[str, Range]:
    """Of the columns as the table calls them, as far as that is certain."""
    stored = row_group_ranges(group)
    if file.columns is None:
        return stored
    named = ((file.columns.called(name), found) for name, found in stored.items())
    return {name: found for name, found in named if name is not None}


def _row_group_starts(metadata: pq.FileMetaData) -> list[int]:
    """The number of the first row of each."""
    counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    return [0, *accumulate(counts)][:-1]


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    found: bytes = sink.getvalue().to_pybytes()
    return found
