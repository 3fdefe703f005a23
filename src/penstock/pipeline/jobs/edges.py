"""`service_edges_1h`: which service called which, hour by hour.

A call is a span whose parent is a span of another service. Its hour, and whether it failed, are
those of the called service's span; the caller's may be in another file, and on another day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from penstock.pipeline.jobs.red import error
from penstock.pipeline.jobs.scan import TIME_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = (
    *("namespace", "service_name", "trace_id", "span_id", "parent_span_id", "status_code"),
)
HOUR_US: Final = 3_600_000_000
_SPAN: Final = ["namespace", "trace_id", "span_id"]


def edges(spans: DataFrame, begin_us: int, end_us: int) -> DataFrame:
    """The calls from `begin_us` on and before `end_us`; callers are any of the spans."""
    hour = (f.col(TIME_US) - f.pmod(f.col(TIME_US), f.lit(HOUR_US))).alias("time")
    is_inside = (f.col(TIME_US) >= begin_us) & (f.col(TIME_US) < end_us)
    called = spans.where(is_inside).select(
        "namespace",
        "trace_id",
        f.col("parent_span_id").alias("span_id"),
        f.col("service_name").alias("callee"),
        hour,
        error().alias("error"),
    )
    # Once each: a span that was sent again on another day would make two calls of one.
    callers = spans.groupBy(*_SPAN).agg(f.min("service_name").alias("caller"))
    calls = called.join(callers, _SPAN).where(f.col("caller") != f.col("callee"))
    return calls.groupBy("time", "namespace", "caller", "callee").agg(
        f.count("*").alias("calls"), f.sum("error").alias("errors")
    )
