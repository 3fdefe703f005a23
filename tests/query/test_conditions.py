"""What a statement can want at most, where that is certain."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from penstock.query.conditions import EVERYTHING, Wanted, wanted
from penstock.query.pruning import conditions_on
from penstock.query.tree import parsed

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DAY_US = 86_400_000_000
FIRST, SECOND, MARCH = (
    int(datetime(2026, month, day, tzinfo=UTC).timestamp()) * 1_000_000
    for month, day in ((1, 1), (1, 2), (3, 1))
)


def traces(*ids: str) -> Wanted:
    """Those alone."""
    return Wanted(trace_ids=frozenset(ids))


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("time >= '2026-01-01'", Wanted(FIRST)),
        ("'2026-01-01' < time", Wanted(FIRST)),
        ("time > TIMESTAMP '2026-01-01' AND name = 'x'", Wanted(FIRST)),
        ("time < TIMESTAMPTZ '2026-01-02 01:00:00+01'", Wanted(None, SECOND)),
        ("time BETWEEN '2026-01-01' AND DATE '2026-01-02'", Wanted(FIRST, SECOND)),
        ("time = '2026-01-01'", Wanted(FIRST, FIRST)),
        ("time IN ('2026-01-01', '2026-01-02')", Wanted(FIRST, SECOND)),
        ("time > '2026-01-01' AND time > '2026-01-02'", Wanted(SECOND)),
        ("time > '2026-01-03'::TIMESTAMP - INTERVAL 1 DAY", Wanted(SECOND)),
        ("date = '2026-01-02'", Wanted(FIRST, SECOND + DAY_US)),
        (f"start_time_unix_nano >= {FIRST * 1000}", Wanted(FIRST - 1)),
        ("trace_id = 'a'", traces("a")),
        ("'a' = trace_id", traces("a")),
        ("trace_id IN ('a', 'b')", traces("a", "b")),
        ("trace_id IN ('a', 'b') AND trace_id = 'b'", traces("b")),
        ("trace_id = 'a' AND time < '2026-01-01'", Wanted(None, FIRST, frozenset("a"))),
        ("trace_id = 'a' OR name = 'b'", EVERYTHING),
        ("NOT trace_id = 'a'", EVERYTHING),
        ("trace_id <> 'a'", EVERYTHING),
        ("trace_id = 5", EVERYTHING),
        ("trace_id = name", EVERYTHING),
        ("trace_id LIKE 'a%'", EVERYTHING),
        ("upper(trace_id) = 'A'", EVERYTHING),
        ("time < now()", EVERYTHING),
        ("time > 'nonsense'", EVERYTHING),
        ("time > to_timestamp(random())", EVERYTHING),
        ("time > (SELECT max(time) FROM logs)", EVERYTHING),
        ("time IS NULL", EVERYTHING),
        ("time > '2026-01-01' IS NULL", EVERYTHING),
        ("end_time_unix_nano < 5", EVERYTHING),
        ("attributes['time'] = '2026-01-01'", EVERYTHING),
    ],
)
def test_condition_bounds_what_is_wanted(
    connection: DuckDBPyConnection, condition: str, found: Wanted
) -> None:
    """Where every row of the answer must satisfy it."""
    tree = parsed(connection, f"FROM spans SELECT name WHERE {condition}")
    assert wanted(connection, tree, conditions_on("spans")) == found


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT 1 FROM spans AS s WHERE s.trace_id = 'a'", traces("a")),
        ("SELECT 1 FROM spans AS s WHERE trace_id = 'a'", traces("a")),
        ("SELECT 1 FROM otel_traces WHERE TraceId = 'a'", traces("a")),
        ("SELECT 1 FROM otel_traces WHERE Timestamp > '2026-03-01'", Wanted(MARCH)),
        (
            "FROM spans a, spans b WHERE a.trace_id = 'x' AND b.trace_id = 'y'",
            traces("x", "y"),
        ),
        (
            "FROM spans a LEFT JOIN logs b USING (trace_id) WHERE a.trace_id = 'x'",
            traces("x"),
        ),
        ("SELECT 1 FROM spans a JOIN logs b ON true WHERE trace_id = 'x'", EVERYTHING),
        ("FROM spans a, spans b WHERE a.trace_id = 'x'", EVERYTHING),
        (
            "WITH t AS (FROM spans WHERE trace_id = 'a') FROM t WHERE name = 'b'",
            traces("a"),
        ),
        ("WITH t AS (FROM spans) FROM t WHERE trace_id = 'a'", EVERYTHING),
        ("WITH spans AS (SELECT 'b' AS trace_id) FROM spans WHERE trace_id = 'a'", EVERYTHING),
        ("SELECT 1 FROM spans WHERE trace_id = 'a' UNION ALL SELECT 1 FROM spans", EVERYTHING),
        (
            "FROM spans WHERE trace_id = 'a' UNION ALL FROM spans WHERE trace_id = 'b'",
            traces("a", "b"),
        ),
        ("SELECT 'x' AS trace_id FROM spans WHERE trace_id = 'x'", EVERYTHING),
        (
            "FROM spans ASOF JOIN logs USING (time) WHERE spans.time < '2026-01-01'",
            EVERYTHING,
        ),
        ("SELECT 1 FROM spans POSITIONAL JOIN logs WHERE spans.trace_id = 'a'", EVERYTHING),
        ("SELECT 1 FROM spans s(trace_id) WHERE trace_id = 'a'", EVERYTHING),
        ("SELECT 1 FROM spans TABLESAMPLE 10% WHERE trace_id = 'a'", EVERYTHING),
        ("SELECT 1 FROM logs WHERE trace_id = 'a' AND EXISTS (FROM spans)", EVERYTHING),
        ("SELECT count(*) FROM spans HAVING min(trace_id) = 'a'", EVERYTHING),
        ("DESCRIBE spans", EVERYTHING),
        ("SELECT 1", EVERYTHING),
    ],
)
def test_statement_as_a_whole_decides(
    connection: DuckDBPyConnection, sql: str, found: Wanted
) -> None:
    """Every mention of the table counts, and what a name means where it stands."""
    assert wanted(connection, parsed(connection, sql), conditions_on("spans")) == found


def test_bound_that_moves_with_the_clock_is_a_lower_one(connection: DuckDBPyConnection) -> None:
    """It is a little later when the statement runs."""
    for now in ("now()", "current_timestamp", "current_date"):
        sql = f"FROM spans WHERE time > {now} - INTERVAL '2 hours'"
        found = wanted(connection, parsed(connection, sql), conditions_on("spans"))
        assert found.first_us is not None
        assert found.last_us is None


def test_bounds_overlap_what_touches_them() -> None:
    """A file without known times may have anything."""
    assert Wanted(5, 9).overlaps((9, 12))
    assert Wanted(5, 9).overlaps((1, 5))
    assert Wanted(5, 9).overlaps(None)
    assert not Wanted(5, 9).overlaps((10, 12))
    assert not Wanted(5, 9).overlaps((1, 4))
