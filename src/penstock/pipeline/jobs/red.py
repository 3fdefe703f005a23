"""`service_red_1m`: rate, errors and duration of each service, minute by minute.

A request is a span of kind SERVER or CONSUMER: what a service was asked to do from outside, once
each. Spans within a service and those of calls that it makes would count the same work again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from penstock.pipeline.jobs.histogram import BUCKETS_PER_DOUBLING, ZERO_BUCKET, quantiles
from penstock.pipeline.jobs.scan import TIME_US
from penstock.pipeline.jobs.schemas import SERVICE_RED_1M

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS: Final = ("namespace", "service_name", "kind", "duration_ns", "status_code")
MINUTE_US: Final = 60_000_000
_REQUESTS: Final = ("SPAN_KIND_SERVER", "SPAN_KIND_CONSUMER")
_QUANTILES: Final = {50: 0.5, 90: 0.9, 95: 0.95, 99: 0.99}
_LARGEST: Final = 2**63 - 1


def red(spans: DataFrame, begin_us: int, end_us: int) -> DataFrame:
    """A row for each service and minute from `begin_us` on and before `end_us`.

    It has `buckets` in place of histogram and quantiles.
    """
    is_inside = (f.col(TIME_US) >= begin_us) & (f.col(TIME_US) < end_us)
    minute = (f.col(TIME_US) - f.pmod(f.col(TIME_US), f.lit(MINUTE_US))).alias("time")
    where = ["namespace", "service_name", "time"]
    duration = f.col("duration_ns")
    by_bucket = (
        spans.where(is_inside & f.col("kind").isin(*_REQUESTS))
        .select(
            *where[:2],
            minute,
            duration,
            error().alias("error"),
            _bucket(duration).alias("bucket"),
        )
        .groupBy(*where, "bucket")
        .agg(
            f.count("*").alias("requests"),
            f.sum("error").alias("errors"),
            # A long could overflow, and that would end the job.
            f.sum(duration.cast("decimal(19,0)")).alias("duration_sum_ns"),
            f.min(duration).alias("duration_min_ns"),
            f.max(duration).alias("duration_max_ns"),
        )
    )
    entry = f.when(f.col("bucket").isNotNull(), f.struct("bucket", "requests"))
    total = f.sum(f.col("duration_sum_ns").cast("decimal(38,0)"))
    return by_bucket.groupBy(*where).agg(
        f.sum("requests").alias("requests"),
        f.sum("errors").alias("errors"),
        f.least(total, f.lit(_LARGEST).cast("decimal(38,0)")).cast("long").alias("duration_sum_ns"),
        f.min("duration_min_ns").alias("duration_min_ns"),
        f.max("duration_max_ns").alias("duration_max_ns"),
        f.array_sort(f.collect_list(entry)).alias("buckets"),
    )


def error() -> Column:
    """1 for a span that failed."""
    return (f.col("status_code").eqNullSafe("STATUS_CODE_ERROR")).cast("long")


def with_quantiles(rows: pa.Table) -> pa.Table:
    """The rows of `red` as the table has them."""
    lists = rows["buckets"].combine_chunks()
    offsets = lists.offsets.to_numpy()
    buckets, counts = lists.values.field(0), lists.values.field(1)
    columns = {name: rows[name] for name in rows.column_names if name != "buckets"}
    for percent, q in _QUANTILES.items():
        values, is_null = quantiles(offsets, buckets.to_numpy(), counts.to_numpy(), q)
        found = pa.array(values, mask=is_null)
        columns[f"duration_p{percent}_ns"] = _within(found, rows)
    columns["duration_histogram"] = pa.MapArray.from_arrays(lists.offsets, buckets, counts)
    return pa.table({name: columns[name] for name in SERVICE_RED_1M.names}).cast(SERVICE_RED_1M)


def _within(values: pa.Array, rows: pa.Table) -> pa.Array:
    """None is beyond the shortest and the longest duration."""
    least = pc.max_element_wise(values, rows["duration_min_ns"], skip_nulls=False)
    return pc.min_element_wise(least, rows["duration_max_ns"], skip_nulls=False)


def _bucket(duration: Column) -> Column:
    """Null where there is no duration."""
    place = f.ceil(f.log2(duration.cast("double")) * BUCKETS_PER_DOUBLING) - 1
    is_zero = duration <= 0
    return f.when(is_zero, f.lit(ZERO_BUCKET)).otherwise(place).cast("int")
