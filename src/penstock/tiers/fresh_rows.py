"""The rows of a table that the lake does not have yet, in the memory of a batch.

The tiers are looked at in the order in which data move: the log, segments, the lake. What moves
meanwhile is seen twice, and the later one has it; nothing is missed. The rows of the log wait in a
file until it is known which of them are in segments. A row is there twice only where a client sent
it twice.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.lake.schemas import TABLES, signal_of
from penstock.model.errors import DataMoved, OffsetUnavailable
from penstock.model.positions import SourcePartition
from penstock.storage import DataDirectory
from penstock.tiers.cut import beyond, ends, rest_of
from penstock.tiers.findings import Findings
from penstock.tiers.holes import look_at_logs, missing_files
from penstock.tiers.hot import hot_batches
from penstock.tiers.look import LOOKS, PAUSE_S, glance_at_lake, sealed_ends
from penstock.tiers.rows import segment_rows
from penstock.tiers.segments import DirectorySegments
from penstock.tiers.warm import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.lake.glance import ColdFile
    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import Positions
    from penstock.storage import Partition
    from penstock.tiers.cut import Ends
    from penstock.tiers.findings import Lack
    from penstock.tiers.warm import Opened


def fresh_rows(
    data_dir: Path,
    lake: LakeSettings,
    table: str,
    spool: Path,
    namespaces: frozenset[str] | None = None,
) -> Fresh:
    """What is fresh now; the rows of the log wait in the file `spool`.

    Data that move meanwhile are looked for again; DataMoved where they always do. What cannot be
    read is missing in `said`, which may grow while segments are read.
    """
    for number in range(1, LOOKS + 1):
        fresh = Fresh(data_dir, lake, table, namespaces)
        fresh.spool(spool)
        try:
            fresh.look()
        except OffsetUnavailable as error:
            if number == LOOKS:
                raise DataMoved(f"it was moved each time: {error}") from error
        else:
            if number == LOOKS or not fresh.said.missing:
                return fresh
        time.sleep(PAUSE_S * 2**number)
    raise AssertionError("the last look returns or raises")


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
        self._data_dir = data_dir
        self._segments: deque[Opened] = deque()
        self._lacks: list[tuple[SourcePartition, Lack]] = []
        self._positions: Positions = {}
        self._ends: Ends = {}
        self.cold_files: tuple[ColdFile, ...] = ()
        self.said = Findings()

    def spool(self, path: Path) -> None:
        """Puts the rows of the log into a file."""
        sealed = sealed_ends(self._data_dir, self._lake, self._table, self._source)
        identity = self._directory.identity()
        schema = TABLES[self._table]
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            for partition in self._partitions():
                place = SourcePartition(identity, str(partition.topic), partition.number)
                said, start = Findings(), sealed.get(place, 0)
                for batch in hot_batches(partition, self._signal, start, said):
                    writer.write_batch(batch)
                self.said.notes += said.notes
                self._lacks += [(place, lack) for lack in said.missing]

    def _partitions(self) -> Iterator[Partition]:
        for partition in self._directory.partitions():
            topic = partition.topic
            chosen = self._namespaces is None or topic.namespace in self._namespaces
            if topic.name == self._signal.value and chosen:
                yield partition

    def look(self) -> None:
        """At segments and the lake, after the log.

        OffsetUnavailable: a segment was deleted that the lake does not have, so look again.
        """
        logs = look_at_logs(self._directory.identity(), self._partitions())
        opened = [open_segment(self._source, each) for each in self._source.since({})]
        listed = [each.segment for each in opened]
        where = self._data_dir, self._lake, self._table
        found = glance_at_lake(*where, listed, self.said, self._namespaces)
        self._positions, self.cold_files = found.positions, found.files
        self._ends = ends(self._positions, listed)
        self._segments = deque(each for each in opened if self._is_warm(each))
        for place, lack in self._lacks:
            if lack.end_offset is None or lack.end_offset > self._ends.get(place, 0):
                self.said.missing.append(lack)
        for gone in missing_files(logs, [each.segment for each in opened], self._positions):
            self.said.lack(str(gone))

    def warm(self) -> Iterator[pa.RecordBatch]:
        """The rows of segments that the lake has not; each is let go behind."""
        while self._segments:
            opened = self._segments.popleft()
            rest = rest_of(opened.segment, self._positions)
            assert opened.reader is not None
            assert rest is not None
            yield from segment_rows(
                rest, opened.reader, self._table, lost=self.said.lack, rowless=self.said.note
            )

    def _is_warm(self, opened: Opened) -> bool:
        """Whether it can be read, and the lake does not have all of it."""
        if rest_of(opened.segment, self._positions) is None:
            return False
        if isinstance(opened.problem, OffsetUnavailable):
            raise opened.problem
        if opened.reader is None:
            self.said.lack(opened.segment.problem or str(opened.problem))
        return opened.reader is not None

    def hot(self, spool: Path) -> Iterator[pa.RecordBatch]:
        """The rows of the log that are in no segment, nor in the lake."""
        with pa.memory_map(str(spool)) as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                yield beyond(batch, self._ends)
