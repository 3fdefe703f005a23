"""Metrics, their data points and exemplars as OTAP tables, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model import slots
from penstock.otel.attributes import attribute_lists, attribute_table
from penstock.otel.columns import (
    SPAN_ID,
    TIME,
    TRACE_ID,
    Column,
    Columns,
    When,
    numbers,
    plain,
    scalar,
    struct_of,
)
from penstock.otel.records import (
    Kind,
    add_fields,
    child_lists,
    child_tables,
    children,
    message_fields,
    row_ids,
)
from penstock.otel.values import NotCanonical, type_codes

if TYPE_CHECKING:
    from penstock.model.bundle import Bundle
    from penstock.otel.containers import Containers
    from penstock.otel.remainder import Kept, Remainder

GAUGE, SUM, HISTOGRAM, EXP_HISTOGRAM, SUMMARY = range(1, 6)

METRIC: Final = (
    Column("name", pa.string(), When.NEVER, required=True),
    Column("description", pa.string()),
    Column("unit", pa.string()),
)
_TIMES: Final = (
    Column("start_time_unix_nano", TIME),
    Column("time_unix_nano", TIME, When.NEVER, required=True),
)
_FLAGS: Final = (Column("flags", pa.uint32()),)
_COUNT: Final = (
    Column("count", pa.uint64(), When.NEVER),
    Column("sum", pa.float64(), When.ABSENT),
)
_EXTREMES: Final = (
    Column("min", pa.float64(), When.ABSENT),
    Column("max", pa.float64(), When.ABSENT),
)
_NUMBER: Final = (
    Column("int_value", pa.int64(), When.ABSENT, field="as_int"),
    Column("double_value", pa.float64(), When.ABSENT, field="as_double"),
)
POINTS: Final = {
    slots.NUMBER_DATA_POINTS: Kind(
        slots.NUMBER_DATA_POINTS, (*_TIMES, *_NUMBER, *_FLAGS), slots.NUMBER_DP_ATTRS
    ),
    slots.SUMMARY_DATA_POINTS: Kind(
        slots.SUMMARY_DATA_POINTS,
        (
            *_TIMES,
            Column("count", pa.uint64(), When.NEVER),
            Column("sum", pa.float64(), When.NEVER),
            Column("quantile", field="quantile_values"),
            *_FLAGS,
        ),
        slots.SUMMARY_DP_ATTRS,
    ),
    slots.HISTOGRAM_DATA_POINTS: Kind(
        slots.HISTOGRAM_DATA_POINTS,
        (
            *_TIMES,
            *_COUNT,
            Column("bucket_counts"),
            Column("explicit_bounds"),
            *_FLAGS,
            *_EXTREMES,
        ),
        slots.HISTOGRAM_DP_ATTRS,
    ),
    slots.EXP_HISTOGRAM_DATA_POINTS: Kind(
        slots.EXP_HISTOGRAM_DATA_POINTS,
        (
            *_TIMES,
            *_COUNT,
            Column("scale", pa.int32(), When.NEVER),
            Column("zero_count", pa.uint64(), When.NEVER),
            Column("positive", null=When.ABSENT),
            Column("negative", null=When.ABSENT),
            *_FLAGS,
            *_EXTREMES,
            Column("zero_threshold", pa.float64()),
        ),
        slots.EXP_HISTOGRAM_DP_ATTRS,
    ),
}
_EXEMPLAR: Final = (
    Column("time_unix_nano", TIME, When.NEVER, required=True),
    *_NUMBER,
    Column("span_id", SPAN_ID),
    Column("trace_id", TRACE_ID),
)
EXEMPLARS: Final = {
    points: Kind(slot, _EXEMPLAR, attributes, "filtered_attributes", pa.uint32())
    for points, slot, attributes in (
        (slots.NUMBER_DATA_POINTS, slots.NUMBER_DP_EXEMPLARS, slots.NUMBER_DP_EXEMPLAR_ATTRS),
        (
            slots.HISTOGRAM_DATA_POINTS,
            slots.HISTOGRAM_DP_EXEMPLARS,
            slots.HISTOGRAM_DP_EXEMPLAR_ATTRS,
        ),
        (
            slots.EXP_HISTOGRAM_DATA_POINTS,
            slots.EXP_HISTOGRAM_DP_EXEMPLARS,
            slots.EXP_HISTOGRAM_DP_EXEMPLAR_ATTRS,
        ),
    )
}
_DATA: Final = {
    GAUGE: ("gauge", slots.NUMBER_DATA_POINTS),
    SUM: ("sum", slots.NUMBER_DATA_POINTS),
    HISTOGRAM: ("histogram", slots.HISTOGRAM_DATA_POINTS),
    EXP_HISTOGRAM: ("exponential_histogram", slots.EXP_HISTOGRAM_DATA_POINTS),
    SUMMARY: ("summary", slots.SUMMARY_DATA_POINTS),
}
_TEMPORAL: Final = ("sum", "histogram", "exponential_histogram")


def metric_tables(containers: Containers, remainder: Remainder) -> dict[int, pa.RecordBatch | None]:
    """The tables of metrics, data points and exemplars, and of their attributes."""
    metrics = containers.records.values
    columns = Columns()
    columns.add("id", numbers(len(metrics), pa.uint16()), required=True)
    containers.add_columns(columns)
    data = {kind: metrics.field(name) for kind, (name, _) in _DATA.items()}
    masks = {kind: held.is_valid() for kind, held in data.items() if held.null_count < len(held)}
    columns.add("metric_type", type_codes(masks, len(metrics)), required=True)
    add_fields(columns, slots.UNIVARIATE_METRICS, metrics, METRIC, remainder)
    _add_sum_columns(columns, metrics)
    tables = {
        slots.UNIVARIATE_METRICS: columns.batch(),
        slots.METRIC_ATTRS: attribute_table(metrics.field("metadata")),
    }
    for slot, kind in POINTS.items():
        lists = [data[n].field("data_points") for n, (_, of) in _DATA.items() if of == slot]
        tables |= _point_tables(kind, lists, remainder)
    return tables


def _point_tables(
    kind: Kind, lists: list[pa.ListArray], remainder: Remainder
) -> dict[int, pa.RecordBatch | None]:
    tables = child_tables(kind, remainder, *lists)
    if tables and kind.slot in EXEMPLARS:
        points = children(*lists)
        tables |= child_tables(EXEMPLARS[kind.slot], remainder, points.field("exemplars"))
    for table in tables.values():
        _check_one_value(table)
    return tables


def _check_one_value(table: pa.RecordBatch | None) -> None:
    if table is not None and {"int_value", "double_value"} <= set(table.schema.names):
        both = pc.and_(*(table.column(column.name).is_valid() for column in _NUMBER))
        if both.true_count:
            raise NotCanonical


def _add_sum_columns(columns: Columns, metrics: pa.StructArray) -> None:
    held = [metrics.field(name) for name in _TEMPORAL]
    values = [
        pc.struct_field(data, "aggregation_temporality")
        for data in held
        if data.null_count < len(data)
    ]
    if values:
        columns.add("aggregation_temporality", pc.coalesce(*values))
    monotonic = pc.struct_field(metrics.field("sum"), "is_monotonic")
    if monotonic.null_count < len(monotonic):
        columns.add("is_monotonic", monotonic)


def metric_messages(bundle: Bundle, type_: pa.StructType, kept: Kept) -> pa.StructArray | None:
    """The metrics of the tables, as messages of `type_` for `ptars`."""
    table = bundle[slots.UNIVARIATE_METRICS]
    ids = row_ids(table)
    fields = message_fields(slots.UNIVARIATE_METRICS, table, METRIC, type_, kept)
    fields["metadata"] = attribute_lists(bundle.get(slots.METRIC_ATTRS), ids)
    kinds = plain(table.column("metric_type"))
    lists: dict[int, pa.ListArray] = {}
    for kind, (name, slot) in _DATA.items():
        is_kind = pc.equal(kinds, scalar(kind, pa.uint8()))
        if is_kind.true_count:
            data = type_.field(name).type
            if slot not in lists:
                lists[slot] = _point_lists(bundle, slot, data.field("data_points").type, ids, kept)
            fields[name] = _data_messages(table, data, lists[slot], pc.invert(is_kind))
    return struct_of(fields)


def _data_messages(
    table: pa.RecordBatch, type_: pa.StructType, points: pa.ListArray, missing: pa.BooleanArray
) -> pa.StructArray | None:
    names = [field.name for field in type_ if field.name in table.schema.names]
    held = {name: plain(table.column(name)) for name in names}
    return struct_of({"data_points": points, **held}, missing)


def _point_lists(
    bundle: Bundle, slot: int, type_: pa.ListType, ids: pa.Array, kept: Kept
) -> pa.ListArray:
    def exemplars(table: pa.RecordBatch, point: pa.StructType) -> dict[str, pa.Array | None]:
        if slot not in EXEMPLARS:
            return {}
        wanted = point.field("exemplars").type
        found = child_lists(EXEMPLARS[slot], bundle, wanted, row_ids(table), kept)
        return {"exemplars": found}

    lists = child_lists(POINTS[slot], bundle, type_, ids, kept, exemplars)
    return pa.nulls(len(ids), type_) if lists is None else lists
