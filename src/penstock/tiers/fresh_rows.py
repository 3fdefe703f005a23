"""The rows of a table that the lake does not have yet, in the memory of a batch.

The rows of the log wait in a file until it is known which of them are in segments. A row is there
twice only where a client sent it twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.lake.schemas import TABLES, signal_of
from penstock.tiers.cut import beyond
from penstock.tiers.findings import Findings
from penstock.tiers.hot import hot_batches
from penstock.tiers.look import Look, looked
from penstock.tiers.rows import segment_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.lake.glance import ColdFile
    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import SourcePartition
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

    As `looked` finds it. What cannot be read is missing in `said`, which may grow while segments
    are read.
    """

    def once(said: Findings) -> Fresh:
        fresh = Fresh(Look(data_dir, lake, table, namespaces, said), table, said)
        fresh.spool(spool)
        fresh.look()
        return fresh

    return looked(once)[0]


class Fresh:
    """One look. First `spool`, then `look`, then the rows."""

    def __init__(self, look: Look, table: str, said: Findings) -> None:
        self._look = look
        self._table = table
        self.said = said
        self._warm: list[Opened] = []
        self._lacks: list[tuple[SourcePartition, Lack]] = []
        self._ends: Ends = {}
        self.cold_files: tuple[ColdFile, ...] = ()

    def spool(self, path: Path) -> None:
        """Puts the rows of the log into a file."""
        schema, signal = TABLES[self._table], signal_of(self._table)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            for place, partition, start in self._look.logs():
                said = Findings()
                for batch in hot_batches(partition, signal, start, said):
                    writer.write_batch(batch)
                self.said.notes += said.notes
                self._lacks += [(place, lack) for lack in said.missing]

    def look(self) -> None:
        """At segments and the lake, after the log."""
        behind = self._look.behind()
        self._warm, self._ends, self.cold_files = behind.warm, behind.ends, behind.cold.files
        for each in behind.warm:
            if each.reader is None:
                self.said.lack(each.segment.problem or str(each.problem))
        for place, lack in self._lacks:
            if lack.end_offset is None or lack.end_offset > self._ends.get(place, 0):
                self.said.missing.append(lack)
        for gone in behind.gone:
            self.said.lack(str(gone))

    def warm(self) -> Iterator[pa.RecordBatch]:
        """The rows of segments that the lake has not; each is let go behind."""
        said = self.said
        while self._warm:
            opened = self._warm.pop(0)
            if opened.reader is not None:
                what = opened.segment, opened.reader, self._table
                yield from segment_rows(*what, lost=said.lack, rowless=said.note)

    def hot(self, spool: Path) -> Iterator[pa.RecordBatch]:
        """The rows of the log that are in no segment, nor in the lake."""
        with pa.memory_map(str(spool)) as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                yield beyond(batch, self._ends)
