"""Every function that the engine has was looked at: it is allowed by name, or refused by name."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pytest

from penstock.model.errors import InvalidArgument
from penstock.query.dialect import MACROS
from penstock.query.functions import FUNCTIONS, TABLE_FUNCTIONS
from penstock.query.relations import KNOWN
from penstock.query.statements import checked

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

REFUSED = """
    __* collate_* icu_collate_* st_* has_*_privilege pg_*_is_visible !__postfix
    array_to_string_comma_default bitstring_byte_comparable col_description combine
    combine_aggr constant_or_null create_sort_key current_connection_id current_query
    current_query_id current_schemas current_setting current_transaction_id currval
    decimal_average decimal_division finalize format_pg_type format_type get_block_size
    get_type getvariable hive_partition_component icu_sort_key in_search_path index_key
    inet_client_addr inet_client_port inet_server_addr inet_server_port invoke
    json_copy_strftime_if_date json_copy_strftime_if_timestamp json_deserialize_sql
    json_serialize_plan json_serialize_sql make_type map_to_pg_oid nextval obj_description
    parse_duckdb_log_message pg_conf_load_time pg_get_constraintdef pg_get_expr
    pg_get_viewdef pg_has_role pg_is_other_temp_schema pg_my_temp_schema
    pg_postmaster_start_time pg_sleep remap_struct replace_type setval shobj_description
    sleep_ms stats switch timetz_byte_comparable to_aggregate_state txid_current
    variant_bytes_to_variant variant_comparator variant_to_parquet_variant vector_type
    vertex_extract write_log
""".split()  # noqa: SIM905 - a list of a hundred is read as a text
"""As values: they parse, bind or tell of what is not the caller's, wait, or are of no use."""
REFUSED_TABLES = """
    duckdb_* read_* parquet_* pragma_* *_external_resource* arrow_scan arrow_scan_dumb
    checkpoint disable_logging disable_profiling enable_logging enable_profiling
    force_checkpoint glob histogram histogram_values json_execute_serialized_sql pandas_scan
    python_arrow_scan python_map_function query query_table seq_scan sniff_csv summary
    test_all_types test_vector_types truncate_duckdb_logs which_secret
""".split()  # noqa: SIM905 - a list of a hundred is read as a text
"""Where a table stands: they read files, tell of the engine, or read tables by a text."""
_VALUES = ("scalar", "aggregate", "macro", "window")
_IN_FROM = ("table", "table_macro")
_UNPARSED = {"!=", "<", "<=", "=", ">", ">=", "is distinct from", "is not distinct from"}
"""Allowed names that no call has: the parser knows them by other classes."""


def engines(connection: DuckDBPyConnection, *kinds: str) -> set[str]:
    """The names of the functions that the installed engine has, of these kinds."""
    sql = "SELECT DISTINCT lower(function_name), function_type FROM duckdb_functions()"
    return {name for name, kind in connection.execute(sql).fetchall() if kind in kinds}


def refused(name: str, patterns: list[str]) -> bool:
    """Whether somebody has decided against it."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def test_no_function_of_the_engine_is_unreviewed(connection: DuckDBPyConnection) -> None:
    """A new one is allowed in `query/functions.py` or refused here, after somebody looked at it."""
    new = {n for n in engines(connection, *_VALUES) - FUNCTIONS if not refused(n, REFUSED)}
    in_from = engines(connection, *_IN_FROM) - TABLE_FUNCTIONS
    assert new == set()
    assert {name for name in in_from if not refused(name, REFUSED_TABLES)} == set()


def test_no_function_is_both_allowed_and_refused(connection: DuckDBPyConnection) -> None:
    """Nor allowed though the engine has none of its name: a later one could be anything."""
    assert [name for name in FUNCTIONS if refused(name, REFUSED)] == []
    assert [name for name in TABLE_FUNCTIONS if refused(name, REFUSED_TABLES)] == []
    macros = {call.partition("(")[0].lower() for call in MACROS}
    there = engines(connection, *_VALUES, *_IN_FROM)
    assert FUNCTIONS - macros - there == set()
    assert TABLE_FUNCTIONS - there == set()


def test_kinds_of_functions_are_those_that_were_reviewed(connection: DuckDBPyConnection) -> None:
    """Pragmas are statements of their own, which are refused as such."""
    sql = "SELECT DISTINCT function_type FROM duckdb_functions()"
    kinds = {kind for (kind,) in connection.execute(sql).fetchall()}
    assert kinds == {*_VALUES, *_IN_FROM, "pragma"}


def test_refused_functions_are_refused_wherever_they_stand(connection: DuckDBPyConnection) -> None:
    """As a value, over a window, in a FROM, after a dot and with a schema."""
    names = {n for n in engines(connection, *_VALUES) if refused(n, REFUSED) and n.isidentifier()}
    calls = [f"SELECT {name}(1)" for name in sorted(names)]
    calls += [
        f"FROM {name}(1)" for name in sorted(engines(connection, *_IN_FROM) - TABLE_FUNCTIONS)
    ]
    for form in (
        "SELECT system.main.{}('x')",
        "SELECT 'x'.{}()",
        "SELECT {}('x') OVER ()",
        "SELECT list_transform(['x'], lambda t: {}(t))",
        "SELECT COLUMNS(lambda c: {}(c) IS NULL) FROM spans",
        "SELECT 1 ORDER BY {}('x')",
        "SELECT 1 LIMIT {}('x')",
        "SELECT count(*) FILTER (WHERE {}('x')) FROM spans",
        "SELECT * REPLACE ({}('x') AS name) FROM spans",
        "FROM unnest([{}('x')])",
        "FROM range({}('x'))",
        "VALUES ({}('x'))",
        "SELECT CAST({}('x') AS INT)",
        "SELECT CASE WHEN true THEN 1 ELSE {}('x') END",
        "EXPLAIN SELECT {}('x')",
        "DESCRIBE SELECT {}('x')",
        "WITH a AS (SELECT {}('x')) FROM a",
        "SELECT TRY({}('x'))",
    ):
        calls += [form.format(name) for name in ("json_serialize_plan", "getvariable")]
    for sql in calls:
        with pytest.raises(InvalidArgument, match="function"):
            checked(connection, sql, KNOWN)


def test_allowed_functions_pass(connection: DuckDBPyConnection) -> None:
    """Those of DuckDB and those by ClickHouse's names, in upper case too."""
    for name in sorted(FUNCTIONS - _UNPARSED):
        if name.isidentifier() and name != "if":
            checked(connection, f'SELECT "{name}"(1), "{name.upper()}"(1)', KNOWN)


def test_typing_error_is_told_with_the_function_that_is_near(
    connection: DuckDBPyConnection,
) -> None:
    """In one line."""
    with pytest.raises(InvalidArgument, match=r"no function 'cuont'.*is count meant"):
        checked(connection, "SELECT cuont(*) FROM spans", KNOWN)
