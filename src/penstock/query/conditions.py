"""What a statement can want of a table at most: a stretch of time, some traces.

Only where it is certain: the table stands in a FROM whose WHERE has the condition beside others
that must all be true. Everything else wants all of the table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import duckdb

from penstock.query.tree import cte_names, nodes, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from duckdb import DuckDBPyConnection

    from penstock.query.tree import Node

_DAY_US: Final = 86_400_000_000
_SAFE_JOINS: Final = frozenset({"INNER", "LEFT", "RIGHT", "OUTER"})
_AT_LEAST: Final = frozenset({"COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO"})
_AT_MOST: Final = frozenset({"COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO"})
_EQUAL: Final = "COMPARE_EQUAL"
_NOW: Final = frozenset(
    {
        "now",
        "get_current_timestamp",
        "current_timestamp",
        "current_date",
        "today",
        "transaction_timestamp",
    }
)
_FUNCTIONS: Final = _NOW | {
    *("+", "-", "*", "/", "//", "to_years", "to_months", "to_weeks", "to_days", "to_hours"),
    *("to_minutes", "to_seconds", "to_milliseconds", "to_microseconds", "to_timestamp"),
    *("make_timestamp", "make_timestamptz", "make_date", "epoch_ms", "date_trunc", "trunc"),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows beyond it are not in the answer. None: without a bound."""

    first_us: int | None = None
    last_us: int | None = None
    trace_ids: frozenset[str] | None = None

    def both(self, other: Wanted) -> Wanted:
        """What satisfies one and the other."""
        traces = [each.trace_ids for each in (self, other) if each.trace_ids is not None]
        return Wanted(
            _most(max, self.first_us, other.first_us),
            _most(min, self.last_us, other.last_us),
            frozenset.intersection(*traces) if traces else None,
        )

    def either(self, other: Wanted) -> Wanted:
        """What satisfies one or the other."""
        traces = None
        if self.trace_ids is not None and other.trace_ids is not None:
            traces = self.trace_ids | other.trace_ids
        firsts, lasts = (self.first_us, other.first_us), (self.last_us, other.last_us)
        return Wanted(
            None if None in firsts else _most(min, *firsts),
            None if None in lasts else _most(max, *lasts),
            traces,
        )

    def overlaps(self, times_us: tuple[int, int] | None) -> bool:
        """Whether there may be something of it between these times."""
        if times_us is None:
            return True
        begins = self.last_us is None or times_us[0] <= self.last_us
        return begins and (self.first_us is None or self.first_us <= times_us[1])


EVERYTHING: Final = Wanted()


def _most(choose: Any, one: Any, other: Any) -> Any:
    known = [each for each in (one, other) if each is not None]
    return choose(known) if known else None


def wanted(
    connection: DuckDBPyConnection, tree: Node, columns: Mapping[str, Mapping[str, str]]
) -> Wanted:
    """What a statement wants of one table.

    `columns` has the names of the table and of its views, and for each what its columns are called
    that conditions are looked for on: to one of `time`, `date`, `nanos`, `trace_id`.
    """
    if cte_names(tree) & columns.keys():
        return EVERYTHING
    everything = list(nodes(tree))
    count = sum(_is_of(node, columns) for node in everything)
    found = [
        _Where(connection, select, _tables(select["from_table"])).wanted(table, columns)
        for select in everything
        if select.get("type") == "SELECT_NODE" and select.get("from_table")
        for table in _tables(select["from_table"])
        if _is_of(table, columns)
    ]
    if not found or len(found) != count:
        return EVERYTHING
    whole = found[0]
    for each in found[1:]:
        whole = whole.either(each)
    return whole


def _is_of(node: Node, columns: Mapping[str, Mapping[str, str]]) -> bool:
    return node.get("type") == "BASE_TABLE" and str(node["table_name"]).lower() in columns


def _tables(node: Node) -> list[Node]:
    """What is joined in a FROM, as far as rows that a WHERE leaves out have no effect."""
    if node.get("type") != "JOIN":
        return [node]
    if node["join_type"] not in _SAFE_JOINS or node["ref_type"] not in ("REGULAR", "CROSS"):
        return []
    return [*_tables(node["left"]), *_tables(node["right"])]


class _Where:
    """The WHERE of one SELECT."""

    def __init__(self, connection: DuckDBPyConnection, select: Node, tables: list[Node]) -> None:
        self._connection = connection
        self._select = select
        self._alone = len(tables) == 1 and select["from_table"] is tables[0]

    def wanted(self, table: Node, columns: Mapping[str, Mapping[str, str]]) -> Wanted:
        """Of one of its tables."""
        if table.get("sample") or table.get("column_name_alias"):
            return EVERYTHING
        called = columns[str(table["table_name"]).lower()]
        alias = str(table["alias"] or table["table_name"]).lower()
        found = EVERYTHING
        for condition in _together(self._select["where_clause"]):
            found = found.both(self._of(condition, alias, called))
        return found

    def _of(self, condition: Node, alias: str, called: Mapping[str, str]) -> Wanted:
        kind = condition["type"]
        if kind == "COMPARE_BETWEEN":
            column = self._column(condition["input"], alias, called)
            lower = self._bounded(column, "at least", [condition["lower"]])
            return lower.both(self._bounded(column, "at most", [condition["upper"]]))
        if kind == "COMPARE_IN":
            column = self._column(condition["children"][0], alias, called)
            return self._bounded(column, "equal", condition["children"][1:])
        if condition["class"] != "COMPARISON":
            return EVERYTHING
        column = self._column(condition["left"], alias, called)
        if column is not None:
            return self._bounded(column, _relation(kind), [condition["right"]])
        column = self._column(condition["right"], alias, called)
        return self._bounded(column, _turned(_relation(kind)), [condition["left"]])

    def _column(self, node: Node, alias: str, called: Mapping[str, str]) -> str | None:
        if node.get("class") != "COLUMN_REF":
            return None
        *place, name = (str(part).lower() for part in node["column_names"])
        if place != [alias] and (place or not self._alone or self._is_renamed(name)):
            return None
        return called.get(name)

    def _is_renamed(self, name: str) -> bool:
        """Whether the SELECT gives the name to something that may be another thing."""
        return any(
            str(each.get("alias", "")).lower() == name for each in self._select["select_list"]
        )

    # --- values --------------------------------------------------------------------------------

    def _bounded(self, column: str | None, relation: str, values: list[Node]) -> Wanted:
        if column is None or not relation or not values:
            return EVERYTHING
        if column == "trace_id":
            ids = [_text(value) for value in values]
            known = relation == "equal" and None not in ids
            return Wanted(trace_ids=frozenset(map(str, ids))) if known else EVERYTHING
        bounds = [self._times(value, column) for value in values]
        moves = any(_is_of_now(value) for value in values)
        if None in bounds or (moves and relation != "at least"):  # it is later when it is asked
            return EVERYTHING
        first = min(bound[0] for bound in bounds if bound)
        last = max(bound[1] for bound in bounds if bound)
        return Wanted(
            None if relation == "at most" else first, None if relation == "at least" else last
        )

    def _times(self, value: Node, column: str) -> tuple[int, int] | None:
        """The microseconds that a value of the column cannot lie outside of."""
        if column == "nanos":
            nanos = self._value(value, "HUGEINT")
            # A number with an exponent is a double, and 10^18 of them are 128 apart.
            return None if nanos is None else (nanos // 1000 - 1, nanos // 1000 + 1)
        found = self._value(value, "TIMESTAMPTZ")
        if found is None:
            return None
        return (found - _DAY_US, found + _DAY_US) if column == "date" else (found, found)

    def _value(self, node: Node, type_: str) -> Any:
        """What the expression is, as DuckDB has it; None where that cannot be known."""
        if not all(_is_constant(each) for each in nodes(node)):
            return None
        cast = (
            "epoch_us(CAST(NULL AS TIMESTAMPTZ))"
            if type_ == "TIMESTAMPTZ"
            else f"CAST(NULL AS {type_})"
        )
        tree = parsed(self._connection, f"SELECT {cast}")
        [outer] = (each for each in nodes(tree) if each.get("class") == "CAST")
        outer["child"] = node
        try:
            text = json.dumps({"error": False, "statements": [tree]})
            [(sql,)] = self._connection.execute("SELECT json_deserialize_sql(?)", [text]).fetchall()
            [(value,)] = self._connection.execute(sql).fetchall()
        except duckdb.Error:
            return None  # the statement will say what is wrong, if it is
        return value


def _text(node: Node) -> str | None:
    """What a quoted text says; with a number the ids would be compared as numbers."""
    literal = node.get("literal") or {}
    return str(literal["text"]) if literal.get("kind") == "STRING" else None


def _together(where: Node | None) -> Iterator[Node]:
    """The conditions that must all be true."""
    if where is None:
        return
    if where["type"] == "CONJUNCTION_AND":
        for child in where["children"]:
            yield from _together(child)
    else:
        yield where


def _relation(kind: str) -> str:
    if kind in _AT_LEAST:
        return "at least"
    if kind in _AT_MOST:
        return "at most"
    return "equal" if kind == _EQUAL else ""


def _turned(relation: str) -> str:
    return {"at least": "at most", "at most": "at least"}.get(relation, relation)


def _is_constant(node: Node) -> bool:
    match node.get("class"):
        case "COLUMN_REF":
            return len(node["column_names"]) == 1 and _name(node) in _NOW
        case "FUNCTION":
            return _name(node) in _FUNCTIONS
        case "CONSTANT" | "CAST" | "TYPE" | None:
            return node.get("type") not in ("SUBQUERY", "SELECT_NODE")
        case _:
            return False


def _is_of_now(node: Node) -> bool:
    return any(
        _name(each) in _NOW
        for each in nodes(node)
        if each.get("class") in ("COLUMN_REF", "FUNCTION")
    )


def _name(node: Node) -> str:
    name = node["column_names"][0] if node["class"] == "COLUMN_REF" else node["function_name"]
    return str(name).lower()
