"""Where rows came from: the columns that name the message of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import InvalidBundle
from penstock.model.slots import MESSAGE_RECORDS
from penstock.otel.columns import numbers, plain
from penstock.otel.lists import from_zero

if TYPE_CHECKING:
    from penstock.model.bundle import Bundle


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of a bundle: the partition of a topic, and the offset of its first message."""

    source: str
    """Who gave the offsets, see `model.positions`."""
    topic: str
    namespace: str
    partition: int
    first_offset: int

    def after(self, messages: int) -> Origin:
        """The place so many messages further on."""
        return replace(self, first_offset=self.first_offset + messages)

    def is_beside(self, other: Origin) -> bool:
        """Whether both are places in the same partition of a topic."""
        return replace(self, first_offset=other.first_offset) == other

    def constants(self, count: int) -> dict[str, pa.Array]:
        """The columns that are the same in every row."""
        source = pa.scalar(self.source or None, pa.string())
        return {
            "_source": pa.repeat(source, count),
            "namespace": pa.repeat(pa.scalar(self.namespace), count),
            "_topic": pa.repeat(pa.scalar(self.topic), count),
            "_topic_partition": pa.repeat(pa.scalar(self.partition, pa.int32()), count),
        }

    def offsets(self, bundle: Bundle, count: int) -> pa.Array:
        """The offset of the message that each of the `count` root records came in."""
        first = pa.scalar(self.first_offset, pa.int64())
        table = bundle.get(MESSAGE_RECORDS)
        if table is None:
            return pa.repeat(first, count)
        ends = pc.cumulative_sum(plain(table.column("records")).cast(pa.int64()))
        if (ends[-1].as_py() if len(ends) else 0) != count:
            raise InvalidBundle(f"{count} records are not as many as its messages have")
        messages = pa.ListArray.from_arrays(from_zero(ends), numbers(count, pa.int32()))
        return pc.add(pc.list_parent_indices(messages), first)
