"""The columns of the lake's tables, as Arrow has them.

They are those that every reader takes: no unsigned numbers, no nanosecond timestamps, no
dictionaries. Every column can be null, since OTLP can leave out everything, and null is what was
not sent. Iceberg, Spark and Parquet call the items of lists `element`, and so do these.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import types

from penstock.model.errors import InvalidArgument
from penstock.otel.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

TIME: Final = pa.timestamp("us", "UTC")
STRINGS: Final = pa.map_(pa.string(), pa.string())
"""Of attributes: their values as text; and what the values were that were not text."""


def list_of(type_: pa.DataType) -> pa.ListType:
    """Lists as readers of Parquet know them."""
    return pa.list_(pa.field("element", type_))


SHARED_STRING: Final = pa.dictionary(pa.int32(), pa.string())
SHARED_STRINGS: Final = pa.map_(SHARED_STRING, SHARED_STRING)
"""Attributes on their way to a file: each text is in memory once."""


def with_shared_strings(type_: pa.DataType) -> pa.DataType:
    """The type with every map of strings, at any depth, as `SHARED_STRINGS`."""
    if type_.equals(STRINGS):
        return SHARED_STRINGS
    if types.is_struct(type_):
        return pa.struct([f.with_type(with_shared_strings(f.type)) for f in type_])
    if types.is_list(type_):
        return pa.list_(type_.value_field.with_type(with_shared_strings(type_.value_type)))
    return type_


_ATTRIBUTES: Final = (("attributes", STRINGS), ("attribute_types", STRINGS))
_DROPPED: Final = ("dropped_attributes_count", pa.int64())

RESOURCE: Final = pa.struct([*_ATTRIBUTES, _DROPPED])
SCOPE: Final = pa.struct([("name", pa.string()), ("version", pa.string()), *_ATTRIBUTES, _DROPPED])
EVENT: Final = pa.struct(
    [("time_unix_nano", pa.int64()), ("name", pa.string()), *_ATTRIBUTES, _DROPPED]
)
LINK: Final = pa.struct(
    [
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("trace_state", pa.string()),
        ("flags", pa.int64()),
        *_ATTRIBUTES,
        _DROPPED,
    ]
)
EXEMPLAR: Final = pa.struct(
    [
        ("time_unix_nano", pa.int64()),
        ("value_int", pa.int64()),
        ("value_double", pa.float64()),
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        *_ATTRIBUTES,
    ]
)
_COUNT_AND_SUM: Final = (("count", pa.int64()), ("sum", pa.float64()))
_EXTREMES: Final = (("min", pa.float64()), ("max", pa.float64()))
HISTOGRAM: Final = pa.struct(
    [
        *_COUNT_AND_SUM,
        *_EXTREMES,
        ("bucket_counts", list_of(pa.int64())),
        ("explicit_bounds", list_of(pa.float64())),
    ]
)
BUCKETS: Final = pa.struct([("offset", pa.int32()), ("bucket_counts", list_of(pa.int64()))])
EXP_HISTOGRAM: Final = pa.struct(
    [
        *_COUNT_AND_SUM,
        *_EXTREMES,
        ("scale", pa.int32()),
        ("zero_count", pa.int64()),
        ("zero_threshold", pa.float64()),
        ("positive", BUCKETS),
        ("negative", BUCKETS),
    ]
)
QUANTILE: Final = pa.struct([("quantile", pa.float64()), ("value", pa.float64())])
SUMMARY: Final = pa.struct([*_COUNT_AND_SUM, ("quantiles", list_of(QUANTILE))])

_WHERE: Final = (("namespace", pa.string()), ("service_name", pa.string()))
_CONTAINERS: Final = (
    ("resource", RESOURCE),
    ("instrumentation_scope", SCOPE),
    ("resource_schema_url", pa.string()),
    ("scope_schema_url", pa.string()),
)
_ORIGIN: Final = (
    ("_source", pa.string()),
    ("_topic", pa.string()),
    ("_topic_partition", pa.int32()),
    ("_offset", pa.int64()),
)
ORIGIN: Final = tuple(name for name, _ in _ORIGIN)
"""The columns that name the message of a row, as `model.positions` does."""
RENAMED: Final = MappingProxyType({"_partition": "_topic_partition"})
"""Columns by the names that they had in 0.1. Iceberg keeps `_partition` for itself, and its own
library refuses to write to a table that has one."""

SPANS: Final = pa.schema(
    [
        ("time", TIME),
        ("date", pa.date32()),
        *_WHERE,
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("parent_span_id", pa.string()),
        ("trace_state", pa.string()),
        ("flags", pa.int64()),
        ("name", pa.string()),
        ("kind", pa.string()),
        ("start_time_unix_nano", pa.int64()),
        ("end_time_unix_nano", pa.int64()),
        ("duration_ns", pa.int64()),
        ("status_code", pa.string()),
        ("status_message", pa.string()),
        *_ATTRIBUTES,
        ("events", list_of(EVENT)),
        ("links", list_of(LINK)),
        _DROPPED,
        ("dropped_events_count", pa.int64()),
        ("dropped_links_count", pa.int64()),
        *_CONTAINERS,
        *_ORIGIN,
    ]
)
LOGS: Final = pa.schema(
    [
        ("time", TIME),
        ("observed_time", TIME),
        ("date", pa.date32()),
        *_WHERE,
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("flags", pa.int64()),
        ("time_unix_nano", pa.int64()),
        ("observed_time_unix_nano", pa.int64()),
        ("severity_number", pa.int32()),
        ("severity_text", pa.string()),
        ("body", pa.string()),
        ("body_type", pa.string()),
        ("event_name", pa.string()),
        *_ATTRIBUTES,
        _DROPPED,
        *_CONTAINERS,
        *_ORIGIN,
    ]
)
METRICS: Final = pa.schema(
    [
        ("time", TIME),
        ("date", pa.date32()),
        *_WHERE,
        ("name", pa.string()),
        ("description", pa.string()),
        ("unit", pa.string()),
        ("type", pa.string()),
        ("time_unix_nano", pa.int64()),
        ("start_time_unix_nano", pa.int64()),
        ("value_int", pa.int64()),
        ("value_double", pa.float64()),
        ("is_monotonic", pa.bool_()),
        ("aggregation_temporality", pa.string()),
        ("histogram", HISTOGRAM),
        ("exp_histogram", EXP_HISTOGRAM),
        ("summary", SUMMARY),
        ("exemplars", list_of(EXEMPLAR)),
        *_ATTRIBUTES,
        ("flags", pa.int64()),
        *_CONTAINERS,
        *_ORIGIN,
    ]
)
TABLES: Final[Mapping[str, pa.Schema]] = MappingProxyType(
    {"spans": SPANS, "logs": LOGS, "metrics": METRICS}
)
"""By their names in SQL."""
USUAL: Final[Mapping[str, pa.Field]] = MappingProxyType(
    {field.name: field for schema in TABLES.values() for field in schema}
)
"""The columns of all of them, by their names."""
SHARING: Final[Mapping[str, pa.Schema]] = MappingProxyType(
    {
        name: pa.schema([f.with_type(with_shared_strings(f.type)) for f in schema])
        for name, schema in TABLES.items()
    }
)
"""The same with shared strings."""

_NAMES: Final = {Signal.TRACES: "spans", Signal.LOGS: "logs", Signal.METRICS: "metrics"}


def table_of(signal: Signal) -> str:
    """The name of the table that holds the signal's records."""
    return _NAMES[signal]


def signal_of(table: str) -> Signal:
    """What the table holds the records of; InvalidArgument where there is no such table."""
    for signal, name in _NAMES.items():
        if name == table:
            return signal
    raise InvalidArgument(f"the lake has no table {table!r}; it has {', '.join(TABLES)}")
