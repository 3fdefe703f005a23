"""What may be asked: one statement that reads the tables that there are. Nothing else is run.

Whatever can stand in a statement is allowed by name: kinds of tables and of expressions here,
functions in `functions`. A text that the engine would parse or bind later is looked at by nobody,
so nothing that does so is allowed. The engine that runs it is shut off by itself besides
(`database`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import duckdb

from penstock.model.errors import InvalidArgument
from penstock.query.functions import check_function, check_table_function
from penstock.query.tree import Node, cte_names, explained, nodes, parsed

if TYPE_CHECKING:
    from collections.abc import Collection

    from duckdb import DuckDBPyConnection

_HARMLESS: Final = frozenset(
    {"SUBQUERY", "JOIN", "EXPRESSION_LIST", "EMPTY", "EMPTY_FROM", "PIVOT", "COLUMN_DATA"}
)
_EXPRESSIONS: Final = frozenset(
    {
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION"),
        *("CONSTANT", "DEFAULT", "FUNCTION", "LAMBDA", "LAMBDA_REF", "OPERATOR"),
        *("POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "TYPE", "WINDOW"),
    }
)
"""What may stand where a value may. Not here: PARAMETER, whose value nobody gives."""
_PLAIN: Final = re.compile(r"(?!duckdb_|pg_|sqlite_|pragma_)[^\W\d]\w*")
"""A word that names no file and nothing of DuckDB's own."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What is run, and what it speaks of."""

    sql: str
    tree: Node
    tables: frozenset[str]
    """Those of the known names that it reads, or may read."""

    @property
    def is_analyzed(self) -> bool:
        """Whether it is run to see how, and not for its rows."""
        return self.sql.startswith("EXPLAIN ANALYZE")


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
    _check_calls(tree)
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


def _check_calls(tree: Node) -> None:
    """InvalidArgument where it calls, or is made of, anything that is not allowed by name."""
    in_from = set()
    for node in nodes(tree):  # a call where a table stands comes before its own node
        if node.get("type") == "TABLE_FUNCTION":
            call = node.get("function") or {}
            check_table_function(_function(call))
            in_from.add(id(call))
        elif "class" in node and node["class"] not in _EXPRESSIONS:
            raise InvalidArgument(f"{str(node['class']).lower()} is not allowed in a statement")
        elif "function_name" in node and id(node) not in in_from:
            check_function(_function(node))


def _table(node: Node, known: Collection[str], own: Collection[str]) -> list[str]:
    """The known table that a node reads; none of most nodes."""
    kind = node.get("type")
    if kind == "SHOW_REF" and not node.get("query"):
        raise InvalidArgument(f"DESCRIBE and SUMMARIZE are about one of {_listed(known)}")
    if kind == "BASE_TABLE":
        return _base_table(node, known, own)
    if "from_table" in node and _kind_of_table(node) not in _KNOWN_KINDS:
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


def _function(call: Node) -> str:
    """The last part of its name, which is what the engine looks for in whatever schema."""
    return str(call.get("function_name", "")).lower()


def _listed(known: Collection[str]) -> str:
    return ", ".join(sorted(known))


def sentence(error: Exception) -> str:
    """What DuckDB says, without the picture of the place in the statement."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())
