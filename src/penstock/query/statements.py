"""What may be asked: one statement that reads. Nothing else reaches the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import duckdb

from penstock.lake.dialects import DUCKDB
from penstock.lake.schemas import TABLES
from penstock.lake.views import view_queries
from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_READING: Final = frozenset({duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN})


def checked(connection: DuckDBPyConnection, sql: str) -> str:
    """The statement; InvalidArgument where it is none, more than one, or does not only read."""
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise InvalidArgument(sentence(error)) from None
    if len(statements) != 1:
        raise InvalidArgument(f"one statement is wanted, and these are {len(statements)}")
    [statement] = statements
    if statement.type not in _READING:
        name = statement.type.name.lower()
        raise InvalidArgument(f"only statements that read are allowed, and this is {name}")
    return statement.query


def tables_in(connection: DuckDBPyConnection, sql: str) -> set[str]:
    """The tables and views that a statement names, with the tables behind the views."""
    named = {name.lower() for name in connection.get_table_names(sql)}
    behind = {table for table in TABLES if named.intersection(view_queries(DUCKDB, [table]))}
    return named | behind


def sentence(error: Exception) -> str:
    """What DuckDB says, without the picture of the place in the statement."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())
