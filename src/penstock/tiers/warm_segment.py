"""The rows of one sealed segment, as much of them as a query needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.lake.schemas import TABLES
from penstock.tiers.findings import Findings
from penstock.tiers.opening import LARGE_SLOTS
from penstock.tiers.pieces import LARGE, PIECES, Piece

if TYPE_CHECKING:
    from penstock.otel.signals import Signal
    from penstock.segment import SegmentReader
    from penstock.tiers.segments import Segment


@dataclass(frozen=True, slots=True)
class WarmSegment:
    """A segment that is open. Its rows are remembered once they were made."""

    table: str
    signal: Signal
    segment: Segment
    reader: SegmentReader

    def piece(self, slim: bool, trace_ids: frozenset[str] | None) -> Piece:
        """Its rows, or those of the bundles that have one of the traces.

        Where they may be `slim`, perhaps without the large columns.
        """
        name = (self.segment.path, self.reader.store_id, self.segment.sealed_at_ns)
        whole = PIECES.peek((*name, "whole"))
        if whole is not None:
            return whole
        if trace_ids is not None:
            return self._made(trace_ids=trace_ids)
        if slim and self.table == "spans":
            made = PIECES.get((*name, "slim"), self._slim)
            if made.is_named:  # else they are known by their content alone
                return made
        return PIECES.get((*name, "whole"), self._made)

    def _slim(self) -> Piece:
        made = self._made(without=LARGE_SLOTS)
        made.rows = made.rows.drop_columns(sorted(LARGE))
        return made

    def _made(
        self,
        *,
        without: frozenset[int] = frozenset(),
        trace_ids: frozenset[str] | None = None,
    ) -> Piece:
        from penstock.tiers.warm import warm_rows  # only where there is something to decode

        found = Findings()
        batches = warm_rows(
            self.segment,
            self.reader,
            self.signal,
            found,
            without=without,
            trace_ids=trace_ids,
        )
        rows = pa.Table.from_batches(batches, TABLES[self.table]).combine_chunks()
        return Piece(self.table, rows, tuple(found.notes), tuple(found.missing))
