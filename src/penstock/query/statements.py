"""What may be asked: one statement that reads the tables that there are. Nothing else is run.

DuckDB is shut off from other files and from the network by itself; here it is also kept from
reading the lake's files in any other way than through the tables, which show a caller only what
is the caller's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import duckdb

from penstock.model.errors import InvalidArgument
from penstock.query.tree import Node, cte_names, explained, nodes, parsed

if TYPE_CHECKING:
    from collections.abc import Collection

    from duckdb import DuckDBPyConnection

_FUNCTIONS: Final = frozenset(
    {
        *("range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"),
        *("pg_timezone_names", "icu_calendar_names", "duckdb_functions", "duckdb_keywords"),
    }
)
"""What may stand where a table may."""
_REFUSED: Final = frozenset({"current_setting", "getenv", "write_log"})
_HARMLESS: Final = frozenset(
    {"SUBQUERY", "JOIN", "EXPRESSION_LIST", "EMPTY", "EMPTY_FROM", "PIVOT", "COLUMN_DATA"}
)
_PLAIN: Final = re.compile(r"(?!duckdb_|pg_|sqlite_|pragma_)[^\W\d]\w*")
"""A word that names no file and nothing of DuckDB's own."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What is run, and what it speaks of."""

    sql: str
    tree: Node
    tables: frozenset[str]
    """Those of the known names that it reads, or may read."""


def checked(connection: DuckDBPyConnection, sql: str, known: Collection[str]) -> Statement:
    """The statement; InvalidArgument where it is none, more than one, or does not only read.

    `known` are the tables and views that it may read; a name of anything else is refused.
    """
    begin, text = _one(connection, sql)
    tree = parsed(connection, text)
    own = cte_names(tree)
    for name in own:
        if not _PLAIN.fullmatch(name):
            raise InvalidArgument(f"a query of the statement's own cannot be named {name!r}")
    tables = {name for node in nodes(tree) for name in _table(node, known, own)}
    return Statement(f"{begin} {text}".lstrip(), tree, frozenset(tables))


def _one(connection: DuckDBPyConnection, sql: str) -> tuple[str, str]:
    """`EXPLAIN` or nothing, and the query."""
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise InvalidArgument(sentence(error)) from None
    if len(statements) != 1:
        raise InvalidArgument(f"one statement is wanted, and these are {len(statements)}")
    [statement] = statements
    kind = _kind(statement)
    if kind == "select":
        return "", statement.query
    if kind == "explain":
        return explained(statement.query)
    raise InvalidArgument(f"only statements that read are allowed, and this is {kind}")


def _kind(statement: duckdb.Statement) -> str:
    try:
        return str(statement.type.name).lower()
    except ValueError:
        return "another"  # one that the Python side of DuckDB has no name for


def _table(node: Node, known: Collection[str], own: Collection[str]) -> list[str]:
    """The known table that a node reads; none of most nodes."""
    kind = node.get("type")
    if node.get("class") == "FUNCTION" and _function(node) in _REFUSED:
        raise InvalidArgument(f"the function {_function(node)} is not allowed")
    if kind == "TABLE_FUNCTION":
        _check_function(node)
    elif kind == "SHOW_REF" and not node.get("query"):
        raise InvalidArgument(f"DESCRIBE and SUMMARIZE are about one of {_listed(known)}")
    elif kind == "BASE_TABLE":
        return _base_table(node, known, own)
    elif "from_table" in node and _kind_of_table(node) not in _KNOWN_KINDS:
        raise InvalidArgument(f"{_kind_of_table(node)} is not allowed where a table stands")
    return []


_KNOWN_KINDS: Final = _HARMLESS | {"TABLE_FUNCTION", "SHOW_REF", "BASE_TABLE"}


def _kind_of_table(node: Node) -> str:
    return str((node["from_table"] or {"type": "EMPTY"})["type"])


def _base_table(node: Node, known: Collection[str], own: Collection[str]) -> list[str]:
    path = [str(part).lower() for part in node["qualified_name"]["path"]]
    name = path[-1]
    if path[:-1] in ([], ["main"]):
        if name in known:
            return [name]
        if name in own and len(path) == 1:
            return []
    raise InvalidArgument(f"there is no table {'.'.join(path)!r}; there are {_listed(known)}")


def _check_function(node: Node) -> None:
    name = _function(node.get("function") or {})
    if name not in _FUNCTIONS:
        raise InvalidArgument(f"the function {name} is not allowed where a table stands")


def _function(node: Node) -> str:
    return str(node.get("function_name", "")).lower()


def _listed(known: Collection[str]) -> str:
    return ", ".join(sorted(known))


def sentence(error: Exception) -> str:
    """What DuckDB says, without the picture of the place in the statement."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())
