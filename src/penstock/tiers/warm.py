"""The warm tier: sealed segments that the lake does not have yet, opened and made rows of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.schemas import TABLES, signal_of
from penstock.model import slots
from penstock.model.errors import Damaged, OffsetUnavailable
from penstock.tiers.findings import Findings
from penstock.tiers.pieces import LARGE, PIECES, Piece
from penstock.tiers.rows import segment_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.model.errors import PenstockError
    from penstock.segment import SegmentReader
    from penstock.tiers.segments import DirectorySegments, Segment

_LARGE_SLOTS: Final = frozenset(
    {
        *(slots.SPAN_ATTRS, slots.SPAN_EVENTS, slots.SPAN_EVENT_ATTRS),
        *(slots.SPAN_LINKS, slots.SPAN_LINK_ATTRS, slots.SCOPE_ATTRS),
    }
)
"""Of spans: what only their large columns are made of."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A segment that was listed. A mapped file stays readable when it is deleted."""

    segment: Segment
    reader: SegmentReader | None
    problem: PenstockError | None = None
    """Why there is no reader: OffsetUnavailable, it was deleted since; or Damaged."""


def open_segment(source: DirectorySegments, segment: Segment) -> Opened:
    """Whether a problem matters is known when the lake was looked at, which may have it too."""
    try:
        return Opened(segment, source.open(segment))
    except (OffsetUnavailable, Damaged) as error:
        return Opened(segment, None, error)


@dataclass(frozen=True, slots=True)
class WarmSegment:
    """A segment that is open. Its rows, all of them, are remembered once they were made."""

    table: str
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
        made = self._made(without=_LARGE_SLOTS)
        made.rows = made.rows.drop_columns(sorted(LARGE))
        return made

    def _made(
        self,
        *,
        without: frozenset[int] = frozenset(),
        trace_ids: frozenset[str] | None = None,
    ) -> Piece:
        found = Findings()
        batches = segment_rows(
            replace(self.segment, begin=None),
            self.reader,
            self.table,
            lost=found.lack,
            rowless=found.note,  # the pipeline sets it aside
            slots=[slot for slot in self.reader.slots if slot not in without],
            wants=_Traces(self.reader, signal_of(self.table).root_slot, trace_ids).may_be_in,
        )
        rows = pa.Table.from_batches(batches, TABLES[self.table]).combine_chunks()
        return Piece(self.table, rows, tuple(found.notes), tuple(found.missing))


class _Traces:
    """Which bundles may have rows of some traces."""

    def __init__(
        self, reader: SegmentReader, root_slot: int, trace_ids: Collection[str] | None
    ) -> None:
        self._reader = reader
        self._root = root_slot
        self._ids = None if trace_ids is None else pa.array(map(_id_bytes, trace_ids))

    def may_be_in(self, index: int) -> bool:
        if self._ids is None:
            return True
        table = self._reader.bundle(index, {self._root}).bundle.get(self._root)
        if table is None or "trace_id" not in table.schema.names:
            return True  # as it was sent: it has to be decoded
        ids = table.column("trace_id")
        ids = ids.dictionary if pa.types.is_dictionary(ids.type) else ids
        return bool(pc.any(pc.is_in(ids.cast(pa.binary()), self._ids)).as_py())


def _id_bytes(text: str) -> bytes:
    """What no span has, where it is no id."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
