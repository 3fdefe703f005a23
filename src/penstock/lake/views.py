"""The tables as views in the ClickHouse convention, so that people's SQL ports over.

The columns are those that the OpenTelemetry Collector's ClickHouse exporter makes. What was not
sent is an empty string, an empty map, an empty list or 0 there, and so it is here. Not so the
columns that queries prune by, which are those of the tables unchanged and may be null: `Timestamp`,
`TimeUnix`, `TraceId`, `SpanId`, `ServiceName`, `SpanName`, `MetricName`, `SeverityNumber`,
`Duration`. Times have microseconds; the tables have the nanoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.lake.dialects import Dialect

_ALL: Final = ("spans", "logs", "metrics")

Columns: TypeAlias = dict[str, str]
"""Expressions by the names of their columns."""


def view_statements(
    dialect: Dialect,
    tables: Iterable[str] = _ALL,
    *,
    temporary: bool = True,
) -> list[str]:
    """`CREATE OR REPLACE VIEW` of every view over those tables, which the engine has by name."""
    kind = "TEMPORARY VIEW" if temporary else "VIEW"
    return [
        f"CREATE OR REPLACE {kind} {name} AS {query}"
        for name, query in view_queries(dialect, tables).items()
    ]


def view_queries(dialect: Dialect, tables: Iterable[str] = _ALL) -> dict[str, str]:
    """The queries of the views over those tables, by the views' names."""
    queries: dict[str, str] = {}
    for table in tables:
        if table not in _VIEWS:
            raise InvalidArgument(f"there are no views of {table!r}")
        for view, columns, condition in _VIEWS[table]:
            queries[view] = _query(dialect, columns(dialect), table, condition)
    return queries


def _query(dialect: Dialect, columns: Columns, table: str, condition: str) -> str:
    listed = ",\n  ".join(f"{text} AS {dialect.identifier(name)}" for name, text in columns.items())
    where = f"\nWHERE {condition}" if condition else ""
    return f"SELECT\n  {listed}\nFROM {table}{where}"


def _text(column: str) -> str:
    return f"coalesce({column}, '')"


def _number(column: str) -> str:
    return f"coalesce({column}, 0)"


def _choice(column: str, names: Mapping[str, str], otherwise: str) -> str:
    cases = " ".join(f"WHEN '{value}' THEN {name}" for value, name in names.items())
    return f"CASE {column} {cases} ELSE {otherwise} END"


def _spans(dialect: Dialect) -> Columns:
    kinds = ("Internal", "Server", "Client", "Producer", "Consumer")
    codes = {"STATUS_CODE_OK": "'Ok'", "STATUS_CODE_ERROR": "'Error'"}
    return {
        "Timestamp": "time",
        "TraceId": "trace_id",
        "SpanId": "span_id",
        "ParentSpanId": _text("parent_span_id"),
        "TraceState": _text("trace_state"),
        "SpanName": "name",
        "SpanKind": _choice(
            "kind", {f"SPAN_KIND_{kind.upper()}": f"'{kind}'" for kind in kinds}, "'Unspecified'"
        ),
        "ServiceName": "service_name",
        "ResourceAttributes": dialect.strings("resource.attributes"),
        "ScopeName": _text("instrumentation_scope.name"),
        "ScopeVersion": _text("instrumentation_scope.version"),
        "SpanAttributes": dialect.strings("attributes"),
        "Duration": "duration_ns",
        "StatusCode": _choice("status_code", codes, "'Unset'"),
        "StatusMessage": _text("status_message"),
        "Events.Timestamp": dialect.of_each("events", dialect.at("e.time_unix_nano")),
        "Events.Name": dialect.of_each("events", _text("e.name")),
        "Events.Attributes": dialect.of_each("events", dialect.strings("e.attributes")),
        "Links.TraceId": dialect.of_each("links", _text("e.trace_id")),
        "Links.SpanId": dialect.of_each("links", _text("e.span_id")),
        "Links.TraceState": dialect.of_each("links", _text("e.trace_state")),
        "Links.Attributes": dialect.of_each("links", dialect.strings("e.attributes")),
    }


def _logs(dialect: Dialect) -> Columns:
    return {
        "Timestamp": "time",
        "TraceId": "trace_id",
        "SpanId": "span_id",
        "TraceFlags": _number("flags"),
        "SeverityText": _text("severity_text"),
        "SeverityNumber": "severity_number",
        "ServiceName": "service_name",
        "Body": _text("body"),
        **_containers(dialect),
        "LogAttributes": dialect.strings("attributes"),
        "EventName": _text("event_name"),
    }


def _containers(dialect: Dialect) -> Columns:
    return {
        "ResourceSchemaUrl": _text("resource_schema_url"),
        "ResourceAttributes": dialect.strings("resource.attributes"),
        "ScopeSchemaUrl": _text("scope_schema_url"),
        "ScopeName": _text("instrumentation_scope.name"),
        "ScopeVersion": _text("instrumentation_scope.version"),
        "ScopeAttributes": dialect.strings("instrumentation_scope.attributes"),
    }


def _points(dialect: Dialect) -> Columns:
    """What the data points of all kinds have."""
    return {
        **_containers(dialect),
        "ScopeDroppedAttrCount": _number("instrumentation_scope.dropped_attributes_count"),
        "ServiceName": "service_name",
        "MetricName": "name",
        "MetricDescription": _text("description"),
        "MetricUnit": _text("unit"),
        "Attributes": dialect.strings("attributes"),
        "StartTimeUnix": dialect.at("start_time_unix_nano"),
        "TimeUnix": "time",
        "Flags": _number("flags"),
    }


def _value(dialect: Dialect, value: str) -> str:
    return f"coalesce({value}_double, CAST({value}_int AS {dialect.double}))"


def _exemplars(dialect: Dialect) -> Columns:
    return {
        "Exemplars.FilteredAttributes": dialect.of_each(
            "exemplars", dialect.strings("e.attributes")
        ),
        "Exemplars.TimeUnix": dialect.of_each("exemplars", dialect.at("e.time_unix_nano")),
        "Exemplars.Value": dialect.of_each("exemplars", _value(dialect, "e.value")),
        "Exemplars.SpanId": dialect.of_each("exemplars", _text("e.span_id")),
        "Exemplars.TraceId": dialect.of_each("exemplars", _text("e.trace_id")),
    }


def _temporality() -> Columns:
    codes = {
        "AGGREGATION_TEMPORALITY_DELTA": "1",
        "AGGREGATION_TEMPORALITY_CUMULATIVE": "2",
    }
    return {"AggregationTemporality": _choice("aggregation_temporality", codes, "0")}


def _gauges(dialect: Dialect) -> Columns:
    return {**_points(dialect), "Value": _value(dialect, "value"), **_exemplars(dialect)}


def _sums(dialect: Dialect) -> Columns:
    return {
        **_gauges(dialect),
        **_temporality(),
        "IsMonotonic": "coalesce(is_monotonic, false)",
    }


def _distribution(dialect: Dialect, column: str) -> Columns:
    return {
        **_points(dialect),
        "Count": _number(f"{column}.count"),
        "Sum": _number(f"{column}.sum"),
        "Min": _number(f"{column}.min"),
        "Max": _number(f"{column}.max"),
        **_exemplars(dialect),
        **_temporality(),
    }


def _histograms(dialect: Dialect) -> Columns:
    return {
        **_distribution(dialect, "histogram"),
        "BucketCounts": dialect.items("histogram.bucket_counts"),
        "ExplicitBounds": dialect.items("histogram.explicit_bounds"),
    }


def _exponential_histograms(dialect: Dialect) -> Columns:
    return {
        **_distribution(dialect, "exp_histogram"),
        "Scale": _number("exp_histogram.scale"),
        "ZeroCount": _number("exp_histogram.zero_count"),
        "PositiveOffset": _number("exp_histogram.positive.offset"),
        "PositiveBucketCounts": dialect.items("exp_histogram.positive.bucket_counts"),
        "NegativeOffset": _number("exp_histogram.negative.offset"),
        "NegativeBucketCounts": dialect.items("exp_histogram.negative.bucket_counts"),
    }


def _summaries(dialect: Dialect) -> Columns:
    return {
        **_points(dialect),
        "Count": _number("summary.count"),
        "Sum": _number("summary.sum"),
        "ValueAtQuantiles.Quantile": dialect.of_each("summary.quantiles", "e.quantile"),
        "ValueAtQuantiles.Value": dialect.of_each("summary.quantiles", "e.value"),
    }


_VIEWS: Final[Mapping[str, tuple[tuple[str, Callable[[Dialect], Columns], str], ...]]] = {
    "spans": (("otel_traces", _spans, ""),),
    "logs": (("otel_logs", _logs, ""),),
    "metrics": (
        ("otel_metrics_gauge", _gauges, "type = 'gauge'"),
        ("otel_metrics_sum", _sums, "type = 'sum'"),
        ("otel_metrics_histogram", _histograms, "type = 'histogram'"),
        (
            "otel_metrics_exponential_histogram",
            _exponential_histograms,
            "type = 'exponential_histogram'",
        ),
        ("otel_metrics_summary", _summaries, "type = 'summary'"),
    ),
}
"""Of each table: the views, their columns, and which rows they have."""
