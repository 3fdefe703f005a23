"""What Spark's tasks do: segments become batches of rows."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from penstock.model import slots
from penstock.model.errors import Damaged, OffsetUnavailable, PenstockError
from penstock.pipeline.descriptors import descriptor_rows
from penstock.tiers.rows import segment_rows
from penstock.tiers.segments import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.pipeline.filters import Predicate
    from penstock.tiers.segments import Bundles, Segment, Segments

_LOG = logging.getLogger(__name__)
_ATTRIBUTES: Final = frozenset({"attributes", "attribute_types"})
_EXEMPLARS: Final = frozenset({"exemplars"})
_NEEDED_BY: Final[Mapping[int, frozenset[str]]] = {
    slots.RESOURCE_ATTRS: frozenset({"resource", "service_name"}),
    slots.SCOPE_ATTRS: frozenset({"instrumentation_scope"}),
    **dict.fromkeys(range(slots.NUMBER_DP_ATTRS, slots.NUMBER_DP_EXEMPLARS), _ATTRIBUTES),
    **dict.fromkeys(range(slots.NUMBER_DP_EXEMPLARS, slots.MULTIVARIATE_METRICS), _EXEMPLARS),
    slots.LOG_ATTRS: _ATTRIBUTES,
    slots.SPAN_ATTRS: _ATTRIBUTES,
    slots.SPAN_EVENTS: frozenset({"events"}),
    slots.SPAN_EVENT_ATTRS: frozenset({"events"}),
    slots.SPAN_LINKS: frozenset({"links"}),
    slots.SPAN_LINK_ATTRS: frozenset({"links"}),
}
"""Slots that only these columns are made from; without them the slot is not read."""


_NONE: Final[Mapping[str, NDArray[np.int64]]] = MappingProxyType({})


class Reading(Protocol):
    """How segments are read. Goes to Spark's workers by pickling."""

    schema: pa.Schema
    predicate: Predicate

    def read(self, chosen: Sequence[Segment]) -> Iterator[pa.RecordBatch]:
        """Their rows, in their order."""
        ...


@dataclass(slots=True)
class DescriptorReading:
    """A row for each segment. Nothing of the segments is read; damage and loss are rows, too."""

    schema: pa.Schema
    predicate: Predicate

    def read(self, chosen: Sequence[Segment]) -> Iterator[pa.RecordBatch]:
        """One batch."""
        rows = self.predicate.rows(_fitted(descriptor_rows(chosen), self.schema))
        if rows.num_rows:
            yield rows


@dataclass(slots=True)
class TableReading:
    """The rows of one of the lake's tables.

    Errors name the segment's file. Without `fail_on_data_loss` what is gone or damaged is passed
    over with a warning: segments as a whole, or single bundles of them.
    """

    segments: Segments
    table: str
    schema: pa.Schema
    predicate: Predicate
    fail_on_data_loss: bool

    def read(
        self, chosen: Sequence[Segment], unwanted: Mapping[str, NDArray[np.int64]] = _NONE
    ) -> Iterator[pa.RecordBatch]:
        """Large bundles in batches of their own, small ones together; none is empty.

        Of what is meant of a segment, by its path, the rows with the `unwanted` numbers are left
        out.
        """
        for segment in chosen:
            batches = self._segment(segment, whole=segment.path in unwanted)
            for batch in without(batches, unwanted.get(segment.path)):
                yield from self.fitted(batch)

    def fitted(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows that are asked for, with the columns that are; null where there is none."""
        found = self.predicate.rows(_fitted(rows, self.schema))
        if found.num_rows:
            yield found

    def _segment(self, segment: Segment, *, whole: bool = False) -> Iterator[pa.RecordBatch]:
        try:
            reader = self._open(segment)
        except (Damaged, OffsetUnavailable) as error:
            self.lose(error)
            return
        yield from segment_rows(
            segment,
            reader,
            self.table,
            lost=self._lost,
            rowless=self._lost,
            # Rows whose numbers matter are made of all slots, as those were that were counted.
            slots=None if whole else self._slots(reader),
            wants=lambda index: whole or self._may_hold(reader, index),
        )

    def _open(self, segment: Segment) -> Bundles:
        if segment.state is State.GONE:
            raise OffsetUnavailable(segment.problem or "", earliest=segment.end_offset or 0)
        if segment.state is State.DAMAGED:
            raise Damaged(segment.problem)
        return self.segments.open(segment)

    def _slots(self, reader: Bundles) -> frozenset[int]:
        columns = frozenset(self.schema.names)
        spared = {slot for slot, by in _NEEDED_BY.items() if columns.isdisjoint(by)}
        return frozenset(reader.slots) - spared

    def _may_hold(self, reader: Bundles, index: int) -> bool:
        first_offset, messages, *_ = reader.manifest(index)
        offsets = (first_offset, first_offset + max(messages - 1, 0))
        return self.predicate.may_hold({"_offset": offsets})

    def _lost(self, text: str) -> None:
        self.lose(Damaged(text))

    def lose(self, error: PenstockError) -> None:
        """Raises it, or says so and goes on."""
        if self.fail_on_data_loss:
            raise error
        _LOG.warning("passed over: %s", error)


def _fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of the schema, in its order; null where the rows have none of that name."""
    held = set(rows.schema.names)
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in held
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def without(
    batches: Iterable[pa.RecordBatch], unwanted: NDArray[np.int64] | None, first: int = 0
) -> Iterator[pa.RecordBatch]:
    """The rows but those with the unwanted numbers, of which theirs begin with `first`."""
    for batch in batches:
        rows = batch
        if unwanted is not None:
            here = unwanted[(unwanted >= first) & (unwanted < first + batch.num_rows)] - first
            mask = np.ones(batch.num_rows, bool)
            mask[here] = False
            rows = batch.filter(pa.array(mask))
        first += batch.num_rows
        yield rows
