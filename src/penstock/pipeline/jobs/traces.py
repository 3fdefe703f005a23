"""`traces`: one row for each trace, on the day of its first span."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from penstock.pipeline.jobs.red import error
from penstock.pipeline.jobs.scan import TIME_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = (
    *("namespace", "service_name", "trace_id", "span_id", "parent_span_id", "name"),
    *("start_time_unix_nano", "end_time_unix_nano", "status_code"),
)
_NO_PARENT: Final = ("", "0" * 16)


def traces(spans: DataFrame, begin_us: int, end_us: int) -> DataFrame:
    """The traces whose first span is from `begin_us` on and before `end_us`.

    Of several roots the first is the root; a trace without one is not complete.
    """
    parent = f.col("parent_span_id")
    is_root = parent.isNull() | parent.isin(*_NO_PARENT)
    root = f.struct("start_time_unix_nano", "span_id", "service_name", "name")
    whole = (
        spans.where(f.col("trace_id").isNotNull())
        .groupBy("namespace", "trace_id")
        .agg(
            f.min(TIME_US).alias("time"),
            f.min("start_time_unix_nano").alias("begin_ns"),
            f.max("end_time_unix_nano").alias("end_ns"),
            f.min(f.when(is_root, root)).alias("root"),
            f.count("*").alias("span_count"),
            f.sum(error()).alias("error_count"),
            f.array_sort(f.collect_set("service_name")).alias("services"),
        )
    )
    duration = f.try_subtract("end_ns", "begin_ns")
    return whole.where((f.col("time") >= begin_us) & (f.col("time") < end_us)).select(
        "time",
        "namespace",
        "trace_id",
        f.when(duration >= 0, duration).otherwise(f.when(duration < 0, 0)).alias("duration_ns"),
        f.col("root.service_name").alias("root_service"),
        f.col("root.name").alias("root_name"),
        "span_count",
        "error_count",
        "services",
        f.col("root").isNotNull().alias("complete"),
    )
