"""What may be asked, and what an answer may cost."""

from __future__ import annotations

import pytest

from penstock.model.errors import InvalidArgument, QueryTooLarge, QueryTooSlow
from penstock.query.engine import QueryLimits
from tests.pipeline.helpers import Data, spans
from tests.query.helpers import answer, cold, values, warm


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (i INT)",
        "INSERT INTO spans VALUES (1)",
        "DELETE FROM spans",
        "DROP VIEW spans",
        "COPY spans TO '{file}'",
        "COPY (SELECT 1) TO '{file}' (FORMAT parquet)",
        "EXPORT DATABASE '{file}'",
        "ATTACH '{file}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA enable_profiling",
        "CALL pragma_version()",
        "PREPARE p AS SELECT 1",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP VIEW spans",
        "",
        "-- nothing",
        "nonsense",
    ],
)
def test_only_one_statement_that_reads_is_taken(data: Data, sql: str) -> None:
    """Anything else is refused, and nothing has happened."""
    file = data.root / "written"
    with pytest.raises(InvalidArgument):
        answer(data, sql.format(file=file))
    assert not file.exists()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_parquet('https://example.invalid/x.parquet')",
        "SELECT * FROM read_blob('{root}/penstock.json')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM parquet_metadata('/etc/passwd')",
        "EXPLAIN ANALYZE SELECT * FROM read_text('/etc/passwd')",
        "WITH x AS (SELECT * FROM read_text('/etc/passwd')) SELECT * FROM x",
        "SELECT getenv('HOME')",
        "SELECT * FROM data",
    ],
)
def test_no_statement_reaches_other_files(data: Data, sql: str) -> None:
    """Nor the network, nor variables of this program."""
    cold(data, spans(0))
    with pytest.raises(InvalidArgument):
        answer(data, sql.format(root=data.root))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM spans",
        "FROM spans LIMIT 1",
        "WITH s AS (SELECT * FROM spans) SELECT name FROM s",
        "DESCRIBE spans",
        "SUMMARIZE spans",
        "EXPLAIN SELECT * FROM spans",
        "SELECT 1;",
        "VALUES (1)",
        "SELECT * FROM spans a JOIN spans b USING (trace_id)",
    ],
)
def test_statement_that_reads_is_answered(data: Data, sql: str) -> None:
    """In whatever form DuckDB has."""
    warm(data, spans(0))
    assert answer(data, sql).rows.num_rows >= 1


def test_mistake_is_told_in_one_line(data: Data) -> None:
    """With the names that would have been right."""
    with pytest.raises(InvalidArgument, match="servicename") as raised:
        answer(data, "SELECT servicename FROM spans")
    assert "\n" not in str(raised.value)
    assert "service_name" in str(raised.value)


def test_answer_has_at_most_the_rows_it_may(data: Data) -> None:
    """One more is an error, and not an answer that lacks some."""
    sql = "SELECT * FROM range({})"
    limits = QueryLimits(rows=1000)
    assert len(values(data, sql.format(1000), limits=limits)) == 1000
    with pytest.raises(QueryTooLarge, match="more than 1000 rows"):
        answer(data, sql.format(1001), limits=limits)


def test_answer_has_at_most_the_bytes_it_may(data: Data) -> None:
    """Few rows can be large."""
    with pytest.raises(QueryTooLarge, match="more than 10000 bytes"):
        answer(data, "SELECT repeat('x', 20000)", limits=QueryLimits(bytes=10_000))


def test_query_that_takes_too_long_is_stopped(data: Data) -> None:
    """Whatever it is doing."""
    sql = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"
    with pytest.raises(QueryTooSlow, match=r"longer than 0\.2 s"):
        answer(data, sql, limits=QueryLimits(seconds=0.2))


def test_query_that_needs_too_much_memory_is_an_error(data: Data) -> None:
    """And not the end of the process."""
    sql = "SELECT list(range::VARCHAR || repeat('x', 1000)) FROM range(1000000)"
    with pytest.raises((QueryTooLarge, InvalidArgument)):
        answer(data, sql, limits=QueryLimits(memory_bytes=20_000_000, seconds=60))


def test_rollup_that_was_never_made_says_how(data: Data) -> None:
    """The table is promised, so its absence is explained."""
    with pytest.raises(InvalidArgument, match="penstock pipeline rollup"):
        answer(data, "SELECT * FROM service_red_1m")
