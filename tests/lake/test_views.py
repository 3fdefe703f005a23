"""Views in the ClickHouse convention, run on DuckDB."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from penstock.lake.dialects import DUCKDB, SPARK, Dialect
from penstock.lake.schemas import TABLES
from penstock.lake.views import view_queries, view_statements
from penstock.model.errors import InvalidArgument

from .helpers import span

NANOS = 1_763_200_003_441_906_949
WHEN = dt.datetime(2025, 11, 15, 9, 46, 43, 441906, dt.UTC)
VIEWS = [
    "otel_traces",
    "otel_logs",
    "otel_metrics_gauge",
    "otel_metrics_sum",
    "otel_metrics_histogram",
    "otel_metrics_exponential_histogram",
    "otel_metrics_summary",
]


def query(sql: str, **tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a query over the views of tables with these rows."""
    with duckdb.connect() as connection:
        for name, schema in TABLES.items():
            connection.register(name, pa.Table.from_pylist(tables.get(name, []), schema=schema))
        for statement in view_statements(DUCKDB):
            connection.execute(statement)
        result = connection.execute(sql)
        names = [column[0] for column in result.description or []]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def point(kind: str, **columns: Any) -> dict[str, Any]:
    """A data point."""
    return {
        "type": kind,
        "time": WHEN,
        "name": "requests",
        "service_name": "cart",
        "start_time_unix_nano": NANOS,
        **columns,
    }


def test_every_view_is_there_and_runs_on_empty_tables() -> None:
    """Also before anything was written."""
    assert list(view_queries(DUCKDB)) == VIEWS
    for view in VIEWS:
        assert query(f"SELECT * FROM {view}") == []  # noqa: S608 - our own names


@pytest.mark.parametrize("view", VIEWS)
def test_every_dialect_has_the_same_columns(view: str) -> None:
    """Quoted in its own way."""

    def columns(dialect: Dialect) -> list[str]:
        lines = view_queries(dialect)[view].splitlines()
        named = (line.rpartition(" AS ")[2].rstrip(",") for line in lines if " AS " in line)
        return [name.strip(dialect.quote) for name in named]

    assert columns(DUCKDB) == columns(SPARK)
    assert len(columns(SPARK)) > 15


def test_spans_read_as_clickhouse_has_them() -> None:
    """Kinds and codes by its words, events and links as parallel lists."""
    event = {"time_unix_nano": NANOS, "name": "exception", "attributes": [("a", "1")]}
    link = {"trace_id": "aa", "span_id": "bb", "trace_state": None, "attributes": None}
    row = span(1, events=[event], links=[link], status_code="STATUS_CODE_ERROR", trace_state="x=y")
    [found] = query("SELECT * FROM otel_traces", spans=[row])
    assert (found["SpanKind"], found["StatusCode"]) == ("Server", "Error")
    assert (found["TraceId"], found["Duration"]) == (row["trace_id"], row["duration_ns"])
    assert found["SpanAttributes"] == {"http.request.method": "GET", "number": "1"}
    assert found["ResourceAttributes"] == {"service.name": "service-1"}
    assert found["Events.Timestamp"] == [WHEN]
    assert (found["Events.Name"], found["Events.Attributes"]) == (["exception"], [{"a": "1"}])
    assert (found["Links.SpanId"], found["Links.TraceState"]) == (["bb"], [""])
    assert found["Links.Attributes"] == [{}]


def test_what_was_not_sent_is_empty() -> None:
    """`ParentSpanId = ''` finds the roots, as people's queries expect."""
    [found] = query("SELECT * FROM otel_traces WHERE ParentSpanId = ''", spans=[{"trace_id": "a"}])
    assert (found["SpanKind"], found["StatusCode"]) == ("Unspecified", "Unset")
    assert (found["SpanAttributes"], found["ResourceAttributes"]) == ({}, {})
    assert (found["Events.Name"], found["Links.TraceId"]) == ([], [])
    assert found["ScopeName"] == ""


@pytest.mark.parametrize(
    ("kind", "word"),
    [("INTERNAL", "Internal"), ("CLIENT", "Client"), ("PRODUCER", "Producer")],
)
def test_kinds_have_clickhouse_s_words(kind: str, word: str) -> None:
    """Not OpenTelemetry's constants."""
    [found] = query("SELECT SpanKind FROM otel_traces", spans=[{"kind": f"SPAN_KIND_{kind}"}])
    assert found["SpanKind"] == word


def test_a_query_by_time_and_service_reaches_the_columns() -> None:
    """Nothing stands between them and the filter, so files and row groups are skipped."""
    queries = view_queries(DUCKDB)
    assert '\n  time AS "Timestamp"' in queries["otel_traces"]
    for view in ("otel_traces", "otel_logs", "otel_metrics_sum"):
        assert '\n  service_name AS "ServiceName"' in queries[view]
    assert '\n  trace_id AS "TraceId"' in queries["otel_traces"]


def test_logs_read_as_clickhouse_has_them() -> None:
    """With their attributes and those of scope and resource."""
    log = {
        "time": WHEN,
        "severity_number": 17,
        "severity_text": "ERROR",
        "body": "no",
        "event_name": "order",
        "attributes": [("k", "v")],
        "instrumentation_scope": {"name": "s", "version": "1", "attributes": [("x", "y")]},
        "scope_schema_url": "https://schema",
    }
    [found] = query("SELECT * FROM otel_logs", logs=[log])
    assert (found["Timestamp"], found["SeverityNumber"], found["Body"]) == (WHEN, 17, "no")
    assert (found["LogAttributes"], found["ScopeAttributes"]) == ({"k": "v"}, {"x": "y"})
    assert (found["EventName"], found["ScopeSchemaUrl"]) == ("order", "https://schema")
    assert (found["TraceFlags"], found["ResourceSchemaUrl"]) == (0, "")


def test_each_kind_of_metric_has_its_view() -> None:
    """And no view has another one's data points."""
    kinds = ["gauge", "sum", "histogram", "exponential_histogram", "summary"]
    points = [point(kind, name=kind) for kind in kinds]
    for kind in kinds:
        [found] = query(f"SELECT MetricName FROM otel_metrics_{kind}", metrics=points)  # noqa: S608 - our own names
        assert found["MetricName"] == kind


def test_sums_have_one_value_whatever_it_was() -> None:
    """ClickHouse has doubles only."""
    exemplar = {"time_unix_nano": NANOS, "value_int": 3, "trace_id": "aa"}
    points = [
        point("sum", value_int=7, is_monotonic=True, exemplars=[exemplar]),
        point("sum", value_double=0.5, aggregation_temporality="AGGREGATION_TEMPORALITY_DELTA"),
    ]
    found = query("SELECT * FROM otel_metrics_sum ORDER BY Value DESC", metrics=points)
    assert [row["Value"] for row in found] == [7.0, 0.5]
    assert [row["IsMonotonic"] for row in found] == [True, False]
    assert [row["AggregationTemporality"] for row in found] == [0, 1]
    assert found[0]["Exemplars.Value"] == [3.0]
    assert (found[0]["StartTimeUnix"], found[0]["Exemplars.TimeUnix"]) == (WHEN, [WHEN])


def test_distributions_are_taken_apart() -> None:
    """Structs become columns."""
    histogram = {"count": 3, "sum": 6.0, "bucket_counts": [1, 2], "explicit_bounds": [2.5]}
    buckets = {"offset": -4, "bucket_counts": [1, 1]}
    exponential = {"count": 2, "scale": 3, "zero_count": 1, "positive": buckets}
    summary = {"count": 4, "sum": 8.0, "quantiles": [{"quantile": 0.99, "value": 5.0}]}
    points = [
        point("histogram", histogram=histogram),
        point("exponential_histogram", exp_histogram=exponential),
        point("summary", summary=summary),
    ]
    [found] = query("SELECT * FROM otel_metrics_histogram", metrics=points)
    assert (found["Count"], found["BucketCounts"], found["ExplicitBounds"]) == (3, [1, 2], [2.5])
    [found] = query("SELECT * FROM otel_metrics_exponential_histogram", metrics=points)
    assert (found["Scale"], found["PositiveOffset"], found["NegativeOffset"]) == (3, -4, 0)
    assert (found["PositiveBucketCounts"], found["NegativeBucketCounts"]) == ([1, 1], [])
    [found] = query("SELECT * FROM otel_metrics_summary", metrics=points)
    assert (found["ValueAtQuantiles.Quantile"], found["ValueAtQuantiles.Value"]) == ([0.99], [5.0])


def test_views_may_be_of_some_tables() -> None:
    """A lake may have no metrics; a table without views is refused."""
    assert list(view_queries(DUCKDB, ["logs"])) == ["otel_logs"]
    assert view_statements(DUCKDB, ["logs"], temporary=False)[0].startswith(
        "CREATE OR REPLACE VIEW otel_logs AS SELECT"
    )
    with pytest.raises(InvalidArgument, match="traces"):
        view_queries(DUCKDB, ["traces"])
