"""The warm tier: sealed segments that the lake does not have yet, mapped and reshaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.rows import row_batches, rows_of
from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstock.lake.rows import Origin
    from penstock.model.bundle import Bundle
    from penstock.otel.signals import Signal
    from penstock.segment import SegmentReader
    from penstock.tiers.findings import Findings
    from penstock.tiers.segments import Segment


def warm_rows(
    segment: Segment,
    reader: SegmentReader,
    signal: Signal,
    said: Findings,
    *,
    without: Collection[int] = (),
    trace_ids: Collection[str] | None = None,
) -> list[pa.RecordBatch]:
    """All that can be read of a segment.

    Slots that are named in `without` are not read. With `trace_ids` rows of other traces may be
    left out.
    """
    bundles = list(_bundles(segment, reader, said, _Choice(reader, signal, without, trace_ids)))
    try:
        return list(row_batches(bundles, signal))
    except PenstockError:  # of one of them; which one is seen when each is alone
        return [batch for each in bundles for batch in _rows(segment, each, signal, said)]


class _Choice:
    """What of a segment is read."""

    def __init__(
        self,
        reader: SegmentReader,
        signal: Signal,
        without: Collection[int],
        trace_ids: Collection[str] | None,
    ) -> None:
        self._reader = reader
        self._root = signal.root_slot
        self._traces = None if trace_ids is None else pa.array(map(_id_bytes, trace_ids))
        self.slots = [slot for slot in reader.slots if slot not in without]

    def wants(self, index: int) -> bool:
        """Whether the bundle may have rows of one of the traces."""
        if self._traces is None:
            return True
        bundle = self._reader.bundle(index, {self._root}).bundle
        table = bundle.get(self._root)
        if table is None or "trace_id" not in table.schema.names:
            return True  # as it was sent: it has to be decoded
        ids = table.column("trace_id")
        ids = ids.dictionary if pa.types.is_dictionary(ids.type) else ids
        return bool(pc.any(pc.is_in(ids.cast(pa.binary()), self._traces)).as_py())


def _id_bytes(text: str) -> bytes:
    """What no span has, where it is no id."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _bundles(
    segment: Segment, reader: SegmentReader, said: Findings, choice: _Choice
) -> Iterator[tuple[Bundle, Origin]]:
    for index in range(len(reader)):
        try:
            if not choice.wants(index):
                continue
            stored = reader.bundle(index, choice.slots)
        except PenstockError as error:
            said.lack(f"{segment.path}: bundle {index}: {error}")
            continue
        yield stored.bundle, segment.origin(stored.first_offset)


def _rows(
    segment: Segment, bundle: tuple[Bundle, Origin], signal: Signal, said: Findings
) -> list[pa.RecordBatch]:
    try:
        batches: list[pa.RecordBatch] = rows_of(bundle[0], signal, bundle[1]).to_batches()
    except PenstockError as error:
        # It is what was stored, and no rows can be made of it: the pipeline sets it aside.
        said.note(f"{segment.path}: {error}")
        return []
    return batches
