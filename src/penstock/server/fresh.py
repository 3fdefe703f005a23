"""The rows of a table that the lake does not have yet, in the memory of a batch.

The tiers are looked at in the order in which data move: the log, segments, the lake. What moves
meanwhile is seen twice, and the later one has it; nothing is missed. The rows of the log wait in a
file until it is known which of them are in segments. A row is there twice only where a client sent
it twice.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from penstock.lake.glance import glance, glance_at_positions
from penstock.lake.rows import row_batches
from penstock.lake.schemas import TABLES, signal_of
from penstock.model.errors import PenstockError
from penstock.model.positions import SourcePartition
from penstock.pipeline.adoption import DirectoryAdoption, adopted
from penstock.pipeline.cut import beyond, ends, in_rest, rest_of
from penstock.pipeline.segments import DirectorySegments
from penstock.query.hot import hot_batches
from penstock.query.warm import open_segment
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.lake.glance import ColdFile
    from penstock.lake.rows import Origin
    from penstock.lake.settings import LakeSettings
    from penstock.model.bundle import Bundle
    from penstock.model.positions import Positions
    from penstock.pipeline.cut import Ends
    from penstock.pipeline.segments import Segment
    from penstock.segment import SegmentReader


_PART_BYTES: Final = 8 * 1024 * 1024
Part: TypeAlias = "list[tuple[Bundle, Origin]]"


class Fresh:
    """One look. First `spool`, then `look`, then the rows."""

    def __init__(
        self,
        data_dir: Path,
        lake: LakeSettings,
        table: str,
        namespaces: frozenset[str] | None = None,
    ) -> None:
        self._directory = DataDirectory(data_dir)
        self._lake = lake
        self._table = table
        self._signal = signal_of(table)
        self._namespaces = namespaces
        topics = frozenset({self._signal.value})
        self._source = DirectorySegments(data_dir, topics=topics, namespaces=namespaces)
        self._segments: deque[tuple[Segment, SegmentReader | None]] = deque()
        self._positions: Positions = {}
        self._ends: Ends = {}
        self.cold_files: tuple[ColdFile, ...] = ()
        self.warnings: list[str] = []

    def spool(self, path: Path) -> None:
        """Puts the rows of the log into a file."""
        sealed = ends(glance_at_positions(self._lake, self._table), self._source.since({}))
        identity = self._directory.identity()
        schema = TABLES[self._table]
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            for partition in self._directory.partitions():
                topic = partition.topic
                chosen = self._namespaces is None or topic.namespace in self._namespaces
                if topic.name == self._signal.value and chosen:
                    place = SourcePartition(identity, str(topic), partition.number)
                    warn = self.warnings.append
                    for batch in hot_batches(partition, self._signal, sealed.get(place, 0), warn):
                        writer.write_batch(batch)

    def look(self) -> None:
        """At segments and the lake, after the log."""
        self._segments = deque(
            (each, open_segment(self._source, each, self.warnings.append))
            for each in self._source.since({})
        )
        found = glance(self._lake, self._table)
        own = DirectoryAdoption(self._directory.root, self._lake)
        self._positions = adopted(found.positions, found.claims, own)
        self.cold_files = found.files
        self._ends = ends(self._positions, (each for each, _ in self._segments))

    def warm(self) -> Iterator[pa.RecordBatch]:
        """The rows of segments that the lake has not; each is let go behind."""
        while self._segments:
            segment, reader = self._segments.popleft()
            rest = rest_of(segment, self._positions)
            if reader is not None and rest is not None:
                for part in _parts(rest, reader, self.warnings.append):
                    for rows in self._rows(rest, part):
                        yield in_rest(rest, rows)

    def hot(self, spool: Path) -> Iterator[pa.RecordBatch]:
        """The rows of the log that are in no segment, nor in the lake."""
        with pa.memory_map(str(spool)) as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                yield beyond(batch, self._ends)

    def _rows(self, segment: Segment, part: Part) -> list[pa.RecordBatch]:
        try:
            return list(row_batches(part, self._signal))
        except PenstockError as error:
            if len(part) > 1:  # of one of them; which one is seen when each is alone
                return [batch for each in part for batch in self._rows(segment, [each])]
            self.warnings.append(f"{segment.path}: {error}")
            return []


def _parts(segment: Segment, reader: SegmentReader, warn: Callable[[str], None]) -> Iterator[Part]:
    """The bundles of a segment, a few at a time."""
    part: Part = []
    size = 0
    for index in range(len(reader)):
        try:
            stored = reader.bundle(index)
        except PenstockError as error:
            warn(f"{segment.path}: bundle {index}: {error}")
            continue
        part.append((stored.bundle, segment.origin(stored.first_offset)))
        size += sum(batch.nbytes for batch in stored.bundle.slots.values())
        if size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
