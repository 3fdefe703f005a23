"""Which columns a statement can need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.lake.dialects import DUCKDB
from penstock.lake.schemas import SPANS
from penstock.lake.views import view_queries
from penstock.query.columns import columns_in
from penstock.query.tree import parsed

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ALL = frozenset(SPANS.names)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT service_name, count(*) FROM spans GROUP BY ALL", {"service_name"}),
        ("SELECT count(*) FROM spans", set()),
        ("SELECT s.name FROM spans s WHERE s.time > now()", {"name", "time"}),
        ('SELECT "Attributes" FROM spans', {"attributes"}),
        ("SELECT a.name FROM spans a JOIN spans b USING (trace_id)", {"name", "trace_id"}),
        ("SELECT SpanName FROM otel_traces WHERE ServiceName = 'a'", {"name", "service_name"}),
        ("SELECT SpanAttributes['x'] FROM otel_traces", {"attributes"}),
        ("FROM spans", ALL),
        ("SELECT s FROM spans s", ALL),
        ("SELECT spans FROM spans", ALL),
        ("SELECT * EXCLUDE (name) FROM spans", ALL),
        ("SELECT COLUMNS('na.*') FROM spans", ALL),
        ("SELECT name FROM spans a NATURAL JOIN spans b", ALL),
        ("SELECT x FROM spans s(x)", ALL),
        ("SELECT #1 FROM spans", ALL),
        ("DESCRIBE spans", ALL),
        ("SELECT name FROM (FROM spans)", ALL),
    ],
)
def test_statement_needs_what_it_names(
    connection: DuckDBPyConnection, sql: str, found: set[str]
) -> None:
    """And everything, where it does not say."""
    views = view_queries(DUCKDB, ["spans"]) if "otel_traces" in sql else {}
    assert columns_in(parsed(connection, sql), ALL, views) == found
