"""The columns of the rollups. Each table is partitioned by the day of `time`, as all tables are."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.lake.schemas import TIME, list_of
from penstock.lake.tables import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE_RED_1M: Final = pa.schema(
    [
        ("time", TIME),  # the minute's begin
        ("namespace", pa.string()),
        ("service_name", pa.string()),
        ("requests", pa.int64()),
        ("errors", pa.int64()),
        ("duration_sum_ns", pa.int64()),
        ("duration_min_ns", pa.int64()),
        ("duration_max_ns", pa.int64()),
        ("duration_p50_ns", pa.int64()),
        ("duration_p90_ns", pa.int64()),
        ("duration_p95_ns", pa.int64()),
        ("duration_p99_ns", pa.int64()),
        ("duration_histogram", pa.map_(pa.int32(), pa.int64())),
    ]
)
SERVICE_EDGES_1H: Final = pa.schema(
    [
        ("time", TIME),  # the hour's begin
        ("namespace", pa.string()),
        ("caller", pa.string()),
        ("callee", pa.string()),
        ("calls", pa.int64()),
        ("errors", pa.int64()),
    ]
)
TRACES: Final = pa.schema(
    [
        ("time", TIME),  # of the first span
        ("namespace", pa.string()),
        ("trace_id", pa.string()),
        ("duration_ns", pa.int64()),
        ("root_service", pa.string()),
        ("root_name", pa.string()),
        ("span_count", pa.int64()),
        ("error_count", pa.int64()),
        ("services", list_of(pa.string())),
        ("complete", pa.bool_()),
    ]
)
SHAPES: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        "service_red_1m": Shape(SERVICE_RED_1M),
        "service_edges_1h": Shape(SERVICE_EDGES_1H, sorted_by=("caller", "callee", "time")),
        "traces": Shape(TRACES, sorted_by=("root_service", "time")),
    }
)
"""By their names in SQL."""
