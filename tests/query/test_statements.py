"""What may be asked: one statement that reads the tables, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.model.errors import InvalidArgument
from penstock.query.relations import KNOWN
from penstock.query.statements import checked
from tests.pipeline.flush.helpers import lake_files
from tests.query.helpers import answer

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from tests.pipeline.helpers import Data

WRITING = [
    "CREATE TABLE t (i INT)",
    "CREATE TEMP TABLE t AS SELECT 1",
    "CREATE VIEW v AS SELECT 1",
    "CREATE OR REPLACE VIEW spans AS SELECT 1",
    "CREATE MACRO f(x) AS x",
    "CREATE SCHEMA s",
    "CREATE SEQUENCE s",
    "CREATE TYPE t AS ENUM ('a')",
    "CREATE SECRET (TYPE s3)",
    "INSERT INTO spans VALUES (1)",
    "UPDATE spans SET name = 'x'",
    "DELETE FROM spans",
    "TRUNCATE spans",
    "MERGE INTO spans USING logs ON true WHEN MATCHED THEN DELETE",
    "DROP VIEW spans",
    "ALTER VIEW spans RENAME TO s",
    "COMMENT ON VIEW spans IS 'x'",
    "COPY spans TO '{file}'",
    "COPY (SELECT 1) TO '{file}' (FORMAT parquet)",
    "COPY spans FROM '{file}'",
    "EXPORT DATABASE '{file}'",
    "IMPORT DATABASE '{file}'",
    "ATTACH '{file}'",
    "ATTACH ':memory:' AS m",
    "DETACH memory",
    "USE memory",
    "CHECKPOINT",
    "VACUUM",
    "ANALYZE",
    "BEGIN",
    "COMMIT",
    "EXECUTE p",
    "DEALLOCATE p",
    "PREPARE p AS SELECT 1",
    "EXPLAIN COPY spans TO '{file}'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}'",
    "EXPLAIN (ANALYZE) CREATE TABLE t AS SELECT 1",
]
SETTINGS = [
    "SET enable_external_access = true",
    "SET GLOBAL enable_external_access = true",
    "SET SESSION threads = 1",
    "RESET lock_configuration",
    "SET VARIABLE x = 1",
    "PRAGMA enable_profiling",
    "PRAGMA memory_limit = '1TB'",
    "CALL pragma_version()",
    "CALL enable_logging()",
    "INSTALL httpfs",
    "LOAD httpfs",
    "FORCE INSTALL httpfs FROM 'http://example.invalid'",
    "UPDATE EXTENSIONS",
    "SELECT current_setting('allowed_directories')",
    "SELECT write_log('x')",
]
FILES = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv_auto('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('{root}/penstock.json')",
    "SELECT * FROM read_json('{root}/penstock.json')",
    "SELECT * FROM read_json_objects('{root}/penstock.json')",
    "SELECT * FROM read_ndjson('{root}/penstock.json')",
    "SELECT * FROM read_parquet('{lake}')",
    "SELECT * FROM parquet_scan('{lake}')",
    "SELECT * FROM parquet_metadata('{lake}')",
    "SELECT * FROM parquet_schema('{lake}')",
    "SELECT * FROM parquet_file_metadata('{lake}')",
    "SELECT * FROM parquet_kv_metadata('{lake}')",
    "SELECT * FROM parquet_bloom_probe('{lake}', 'trace_id', 'x')",
    "SELECT * FROM '{lake}'",
    'SELECT * FROM "{lake}"',
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM 'x.csv'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM read_duckdb('{root}/lake/catalog.db')",
    "SELECT * FROM sqlite_scan('{root}/lake/catalog.db', 'iceberg_tables')",
    "SELECT * FROM iceberg_scan('{root}/lake/spans')",
    "SELECT * FROM read_parquet('https://example.invalid/x.parquet')",
    "SELECT * FROM 's3://bucket/x.parquet'",
    "SELECT * FROM spans WHERE name IN (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT * FROM spans, LATERAL (FROM read_text('/etc/passwd'))",
    "WITH x AS (SELECT * FROM read_text('/etc/passwd')) SELECT * FROM x",
    "WITH RECURSIVE x AS (SELECT 1 UNION ALL FROM read_text('/etc/passwd')) FROM x",
    "SELECT 1 UNION ALL SELECT content FROM read_text('/etc/passwd')",
    "EXPLAIN ANALYZE SELECT * FROM read_text('/etc/passwd')",
    "DESCRIBE SELECT * FROM read_text('/etc/passwd')",
    "SUMMARIZE '{lake}'",
    "FROM (FROM read_text('/etc/passwd'))",
    "FROM system.main.read_text('/etc/passwd')",
    "FROM query('FROM read_text(''/etc/passwd'')')",
    "FROM query_table('spans')",
    "FROM query_table(['spans', 'logs'])",
    "FROM json_execute_serialized_sql('{{}}')",
    "FROM which_secret('x', 's3')",
    "FROM pandas_scan(1)",
    "FROM arrow_scan(1, 2, 3)",
    "SELECT getenv('HOME')",
    "FROM duckdb_views()",
    "FROM duckdb_settings()",
    "FROM duckdb_secrets()",
    "FROM duckdb_logs",
    "FROM duckdb_external_file_cache()",
    "FROM information_schema.tables",
    "FROM pg_catalog.pg_class",
    "FROM sqlite_master",
    "FROM data",
    "FROM answer",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "FROM memory.main.spans",
    "FROM temp.main.spans",
]
OTHER = [
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP VIEW spans",
    "SELECT 1;; SELECT 2",
    "SELECT 1 /* */; --\n DROP VIEW spans",
    "",
    ";",
    "-- nothing",
    "nonsense",
    "SELECT",
    "SELECT 'unclosed",
    "PIVOT spans ON name",
]
READING = [
    "SELECT count(*) FROM spans",
    "SELECT 1;",
    "SELECT 1 -- and no more",
    "SELECT ';' AS semicolon",
    "FROM spans LIMIT 1",
    "TABLE spans",
    "VALUES (1)",
    "WITH s AS (SELECT * FROM spans) SELECT name FROM s",
    "WITH s AS MATERIALIZED (FROM spans) FROM s",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) FROM n",
    "DESCRIBE spans",
    "DESCRIBE SELECT name FROM spans",
    "SUMMARIZE spans",
    "EXPLAIN SELECT * FROM spans",
    "EXPLAIN (FORMAT json) SELECT * FROM spans",
    "EXPLAIN ANALYZE SELECT name FROM spans",
    "/* why */ EXPLAIN (ANALYZE, FORMAT json) SELECT name FROM spans",
    "EXPLAIN (SELECT 1)",
    "SELECT * FROM spans a JOIN spans b USING (trace_id)",
    'SELECT "Name" FROM "SPANS"',
    "SELECT * FROM range(3), unnest([1, 2])",
    "SELECT unnest(['read_text', '/etc/passwd'])",
    "SELECT 'FROM read_text(''/etc/passwd'')' AS text",
    "SELECT list_transform([1, 2], lambda x: x + 1)",
    "SELECT name FROM spans WINDOW w AS () QUALIFY row_number() OVER w = 1",
    "SELECT name, count(*) FROM spans GROUP BY ROLLUP (name)",
    "FROM (PIVOT spans ON kind IN ('a') USING count(*))",
    "SELECT * FROM spans TABLESAMPLE 100%",
    "SELECT key FROM json_each('{\"a\": 1}')",
]


@pytest.mark.parametrize("sql", [*WRITING, *SETTINGS, *OTHER])
def test_only_one_statement_that_reads_is_taken(filled: Data, sql: str) -> None:
    """Anything else is refused, and nothing has happened."""
    file = filled.root / "written"
    with pytest.raises(InvalidArgument):
        answer(filled, sql.format(file=file))
    assert not file.exists()


@pytest.mark.parametrize("sql", FILES)
def test_no_statement_reaches_files_or_the_engine(filled: Data, sql: str) -> None:
    """Nor the network, nor variables of this program, nor the lake's files by their names."""
    with pytest.raises(InvalidArgument):
        answer(filled, sql.format(root=filled.root, lake=lake_files(filled, "spans")[0]))


@pytest.mark.parametrize("sql", FILES)
def test_statement_is_refused_before_the_engine_runs_it(
    connection: DuckDBPyConnection, sql: str
) -> None:
    """By what it says, not by what the engine can reach."""
    if "getenv" not in sql:  # the engine has no such function
        with pytest.raises(InvalidArgument):
            checked(connection, sql.format(root="/r", lake="/l.parquet"), KNOWN)


@pytest.mark.parametrize("sql", READING)
def test_statement_that_reads_is_answered(filled: Data, sql: str) -> None:
    """In whatever form DuckDB has."""
    assert answer(filled, sql).rows.num_rows >= 1


def test_tables_that_a_statement_reads_are_known(connection: DuckDBPyConnection) -> None:
    """Wherever it names them; what it names itself is not among them."""
    sql = "WITH s AS (FROM SPANS) SELECT * FROM s, (SELECT max(time) FROM otel_logs) WHERE 1 = 1"
    assert checked(connection, sql, KNOWN).tables == {"spans", "otel_logs"}


def test_unknown_table_is_told_with_those_there_are(filled: Data) -> None:
    """In one line."""
    with pytest.raises(InvalidArgument, match=r"no table 'span'; there are .*spans") as raised:
        answer(filled, "FROM span")
    assert "\n" not in str(raised.value)


def test_explained_statement_is_the_one_that_was_checked(connection: DuckDBPyConnection) -> None:
    """Options are not passed on."""
    found = checked(connection, "explain (analyze, format json)\n FROM spans", KNOWN)
    assert " ".join(found.sql.split()) == "EXPLAIN ANALYZE FROM spans"
