"""When the events of a stream happened, earliest and latest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_LEAST, _MOST = -(2**63), 2**63 - 1


def event_times_ns(batches: Sequence[pa.RecordBatch], column: str | None) -> tuple[int, int] | None:
    """The earliest and latest time in the column; None without one.

    Times that nanoseconds in 64 bits cannot hold count as the nearest that they can.
    """
    schema = batches[0].schema
    if column not in schema.names:
        return None
    unit_ns = _nanoseconds_per_unit(schema.field(column).type)
    if unit_ns is None:
        return None
    ranges = [_range(batch.column(column)) for batch in batches]
    found = [times for times in ranges if times is not None]
    if not found:
        return None
    earliest, latest = min(low for low, _ in found), max(high for _, high in found)
    return _held(earliest * unit_ns), _held(latest * unit_ns)


def _nanoseconds_per_unit(type_: pa.DataType) -> int | None:
    if types.is_timestamp(type_):
        return _UNIT_NS[type_.unit]
    return 1 if types.is_int64(type_) else None


def _range(times: pa.Array) -> tuple[int, int] | None:
    ends = pc.min_max(times.cast(pa.int64()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return None if low is None else (low, high)


def _held(time_ns: int) -> int:
    return max(_LEAST, min(time_ns, _MOST))
