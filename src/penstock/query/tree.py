"""A statement as DuckDB parses it: plain dicts, to be looked through before it is run."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import duckdb

from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

Node: TypeAlias = dict[str, Any]

_ANALYZE: Final = frozenset({"analyze", "analyse"})
_OPTIONS: Final = re.compile(r"\(\s*(?:(?P<analyze>analy[sz]e)\b|format\b)[^()]*\)", re.IGNORECASE)


def parsed(connection: DuckDBPyConnection, sql: str) -> Node:
    """The tree of one statement that reads; InvalidArgument where DuckDB has none for it."""
    [(text,)] = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    found = json.loads(text)
    if found["error"] or len(found["statements"]) != 1:
        reason = found.get("error_message", "it is more than one statement")
        raise InvalidArgument(f"the statement cannot be looked through: {reason}")
    tree: Node = found["statements"][0]
    return tree


def nodes(tree: Any) -> Iterator[Node]:
    """Every node, the tree itself first."""
    waiting = [tree]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield here
            waiting += reversed(here.values())
        elif isinstance(here, list):
            waiting += reversed(here)


def cte_names(tree: Node) -> set[str]:
    """The names that the statement gives to queries of its own, lower-case."""
    maps = (node["cte_map"]["map"] for node in nodes(tree) if node.get("cte_map"))
    return {str(entry["key"]).lower() for entries in maps for entry in entries}


def explained(sql: str) -> tuple[str, str]:
    """How an EXPLAIN begins, and the statement that it is about; options are left out."""
    words = [
        (begin, sql[begin:].split(None, 1)[0].lower())
        for begin, kind in duckdb.tokenize(sql)
        if kind is not duckdb.token_type.comment
    ]
    at = 2 if words[1][1] in _ANALYZE else 1
    inner = sql[words[at][0] :]
    options = _OPTIONS.match(inner)
    analyzed = at == 2 or (options is not None and options["analyze"] is not None)
    return "EXPLAIN ANALYZE" if analyzed else "EXPLAIN", inner[
        options.end() :
    ] if options else inner
