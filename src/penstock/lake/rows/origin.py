"""Where rows came from: the columns that name the message of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import InvalidBundle
from penstock.model.slots import MESSAGE_RECORDS
from penstock.otel.columns import numbers, plain
from penstock.otel.lists import from_zero

if TYPE_CHECKING:
    from penstock.model.bundle import Bundle
    from penstock.model.positions import Position


def constants(origin: Position, count: int) -> dict[str, pa.Array]:
    """The columns that are the same in every row of a partition."""
    source = pa.scalar(origin.source or None, pa.string())
    return {
        "_source": pa.repeat(source, count),
        "namespace": pa.repeat(pa.scalar(origin.place.namespace), count),
        "_topic": pa.repeat(pa.scalar(origin.topic), count),
        "_topic_partition": pa.repeat(pa.scalar(origin.partition, pa.int32()), count),
    }


def offsets(origin: Position, bundle: Bundle, count: int) -> pa.Array:
    """The offset of the message that each of the `count` root records of a bundle came in."""
    first = pa.scalar(origin.offset, pa.int64())
    table = bundle.get(MESSAGE_RECORDS)
    if table is None:
        return pa.repeat(first, count)
    ends = pc.cumulative_sum(plain(table.column("records")).cast(pa.int64()))
    if (ends[-1].as_py() if len(ends) else 0) != count:
        raise InvalidBundle(f"{count} records are not as many as its messages have")
    messages = pa.ListArray.from_arrays(from_zero(ends), numbers(count, pa.int32()))
    return pc.add(pc.list_parent_indices(messages), first)
