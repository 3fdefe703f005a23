"""Which columns of a table a statement can need, so that rows are made without the others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from penstock.lake.schemas import TABLES
from penstock.query.tree import nodes
from penstock.tiers.pieces import LARGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.lake.glance import Glance
    from penstock.query.tree import Node

_WORD: Final = re.compile(r"\w+")
_EVERYTHING: Final = frozenset({"STAR", "POSITIONAL_REFERENCE"})


def columns_in(tree: Node, names: frozenset[str], views: Mapping[str, str]) -> frozenset[str]:
    """Those of the names that the statement may need; all of them, where it does not say.

    A word of the statement counts, whatever it means there. `views` are the queries of the views
    that it reads: a view's columns are not named as the table's are, so all of them count.
    """
    everything = list(nodes(tree))
    relations = {_text(node.get(key)) for node in everything for key in ("alias", "table_name")}
    if any(_is_everything(node, relations) for node in everything):
        return names
    words = {_text(text) for text in _texts(everything)}
    words |= {word for query in views.values() for word in _view_words(query, words)}
    return names & words


def needs_large(tree: Node, table: Glance, name: str, views: Mapping[str, str]) -> bool:
    """Whether the statement may need the large columns of a table, by any name that they have.

    Promoted attributes are made of them.
    """
    promoted = {each.column for each in table.promoted}
    return not own_columns_in(tree, table, name, views).isdisjoint(LARGE | promoted)


def own_columns_in(
    tree: Node, table: Glance, name: str, views: Mapping[str, str]
) -> frozenset[str]:
    """Penstock's columns of a table that the statement may need, by any name that they have."""
    also = {} if table.columns is None else table.columns.also
    own = {other.lower(): own for other, own in also.items()}
    known = frozenset({*TABLES[name].names, *(each.column for each in table.promoted), *own})
    return frozenset(own.get(each, each) for each in columns_in(tree, known, views))


def _is_everything(node: Node, relations: set[str]) -> bool:
    if node.get("class") == "COLUMN_REF":  # of a relation: its whole row, as a struct
        return len(node["column_names"]) == 1 and _text(node["column_names"][0]) in relations
    return (
        node.get("class") in _EVERYTHING
        or node.get("type") in ("PIVOT", "SHOW_REF")
        or node.get("ref_type") == "NATURAL"
        or bool(node.get("column_name_alias"))
    )


def _text(value: object) -> str:
    return str(value).lower()


def _view_words(query: str, words: set[str]) -> Iterator[str]:
    """Of the lines of a view's query that make a column which is named."""
    for line in query.splitlines():
        expression, _, name = line.rpartition(" AS ")
        if not expression or name.strip('",').lower() in words:
            yield from _WORD.findall(line.lower())


def _texts(everything: Iterable[Node]) -> Iterator[str]:
    for node in everything:
        for value in node.values():
            if isinstance(value, str):
                yield value
            elif isinstance(value, list):
                yield from (each for each in value if isinstance(each, str))
