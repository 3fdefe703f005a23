"""Data points of each kind, with their exemplars."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.rows.attributes import attributes_of
from penstock.lake.rows.batches import fit
from penstock.lake.rows.fields import Fields, days, micros, signed
from penstock.lake.rows.ids import hex_ids
from penstock.lake.rows.parents import child_lists
from penstock.lake.schemas import (
    BUCKETS,
    EXEMPLAR,
    EXP_HISTOGRAM,
    HISTOGRAM,
    QUANTILE,
    SUMMARY,
    list_of,
    with_shared_strings,
)
from penstock.model import slots
from penstock.otel.columns import scalar
from penstock.otel.metrics import EXEMPLARS, POINTS
from penstock.otel.records import row_ids

if TYPE_CHECKING:
    from penstock.lake.rows.tables import Tables
    from penstock.otel.records import Kind

_DOUBLE: Final = pa.float64()


def point_columns(tables: Tables, slot: int) -> dict[str, pa.Array]:
    """The columns that the data points of one kind have of their own."""
    table = tables.bundle[slot]
    points, ids = Fields.of(table), row_ids(table)
    time = micros(points.bits("time_unix_nano"))
    return {
        "time": time,
        "date": days(time),
        "time_unix_nano": points.nanos("time_unix_nano"),
        "start_time_unix_nano": points.nanos("start_time_unix_nano"),
        "value_int": points.plain("int_value", pa.int64()),
        "value_double": points.plain("double_value", _DOUBLE),
        **_structs(points, slot),
        "exemplars": _exemplar_lists(tables, slot, ids),
        **attributes_of(tables.get(POINTS[slot].attributes_slot), ids).columns(),
        "flags": points.positive("flags"),
    }


def _structs(points: Fields, slot: int) -> dict[str, pa.Array]:
    """The struct of the kind; null those of the others."""
    structs = {
        "histogram": pa.nulls(points.count, HISTOGRAM),
        "exp_histogram": pa.nulls(points.count, EXP_HISTOGRAM),
        "summary": pa.nulls(points.count, SUMMARY),
    }
    match slot:
        case slots.HISTOGRAM_DATA_POINTS:
            structs["histogram"] = _histograms(points)
        case slots.EXP_HISTOGRAM_DATA_POINTS:
            structs["exp_histogram"] = _exp_histograms(points)
        case slots.SUMMARY_DATA_POINTS:
            structs["summary"] = _summaries(points)
    return structs


def _histograms(points: Fields) -> pa.StructArray:
    columns = {
        **_count_and_sum(points),
        **_extremes(points),
        "bucket_counts": _counts(points),
        "explicit_bounds": _lists(points, "explicit_bounds", _DOUBLE),
    }
    return _struct(columns, HISTOGRAM)


def _exp_histograms(points: Fields) -> pa.StructArray:
    columns = {
        **_count_and_sum(points),
        **_extremes(points),
        "scale": points.plain("scale", pa.int32()),
        "zero_count": points.unsigned("zero_count"),
        "zero_threshold": points.plain("zero_threshold", _DOUBLE),
        "positive": _buckets(points, "positive"),
        "negative": _buckets(points, "negative"),
    }
    return _struct(columns, EXP_HISTOGRAM)


def _summaries(points: Fields) -> pa.StructArray:
    quantiles = _lists(points, "quantile", QUANTILE)
    return _struct({**_count_and_sum(points), "quantiles": quantiles}, SUMMARY)


def _count_and_sum(points: Fields) -> dict[str, pa.Array]:
    return {"count": points.unsigned("count"), "sum": points.plain("sum", _DOUBLE)}


def _extremes(points: Fields) -> dict[str, pa.Array]:
    return {"min": points.plain("min", _DOUBLE), "max": points.plain("max", _DOUBLE)}


def _buckets(points: Fields, name: str) -> pa.Array:
    column = points.get(name)
    if column is None:
        return pa.nulls(points.count, BUCKETS)
    buckets = points.inner(name)
    columns = {"offset": buckets.plain("offset", pa.int32()), "bucket_counts": _counts(buckets)}
    return _struct(columns, BUCKETS, column.is_null() if column.null_count else None)


def _struct(
    columns: dict[str, pa.Array], type_: pa.StructType, missing: pa.BooleanArray | None = None
) -> pa.StructArray:
    arrays = [columns[field.name] for field in type_]
    return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=missing)


def _counts(fields: Fields) -> pa.Array:
    return _lists(fields, "bucket_counts", pa.int64())


def _lists(fields: Fields, name: str, type_: pa.DataType) -> pa.Array:
    """Lists of such values; null for empty ones, which OTLP does not tell from none."""
    lists = fields.get(name)
    if lists is None:
        return pa.nulls(fields.count, list_of(type_))
    values = signed(lists.values) if pa.types.is_uint64(lists.type.value_type) else lists.values
    lengths = pc.fill_null(pc.list_value_length(lists), scalar(0, pa.int32()))
    missing = pc.equal(lengths, scalar(0, pa.int32()))
    offsets = pc.add(lists.offsets, scalar(0, pa.int32()))  # not a slice, which takes no mask
    return pa.ListArray.from_arrays(offsets, fit(values, type_), type=list_of(type_), mask=missing)


def _exemplar_lists(tables: Tables, slot: int, ids: pa.Array) -> pa.Array:
    kind = EXEMPLARS.get(slot)
    if kind is None:
        return pa.nulls(len(ids), list_of(with_shared_strings(EXEMPLAR)))
    columns = partial(_exemplars, tables, kind)
    return child_lists(tables.get(kind.slot), ids, EXEMPLAR, columns)


def _exemplars(tables: Tables, kind: Kind, table: pa.RecordBatch) -> dict[str, pa.Array]:
    exemplars = Fields.of(table)
    return {
        "time_unix_nano": exemplars.nanos("time_unix_nano"),
        "value_int": exemplars.plain("int_value", pa.int64()),
        "value_double": exemplars.plain("double_value", _DOUBLE),
        "trace_id": hex_ids(table, kind.slot, "trace_id", tables.kept),
        "span_id": hex_ids(table, kind.slot, "span_id", tables.kept),
        **attributes_of(tables.get(kind.attributes_slot), row_ids(table)).columns(),
    }
