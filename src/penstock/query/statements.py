"""What may be asked: one statement that reads. Nothing else reaches the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import duckdb

from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duckdb import DuckDBPyConnection

_READING: Final = frozenset({duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN})
_NAMES: Final = frozenset({duckdb.token_type.identifier, duckdb.token_type.keyword})


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


def tables_in(sql: str, known: Iterable[str]) -> set[str]:
    """Those of the known names that a statement may be speaking of, whatever it means by them."""
    tokens = duckdb.tokenize(sql)
    ends = [begin for begin, _ in tokens[1:]] + [len(sql)]
    words = {
        sql[begin:end].strip().strip('"').lower()
        for (begin, kind), end in zip(tokens, ends, strict=True)
        if kind in _NAMES
    }
    return words.intersection(known)


def sentence(error: Exception) -> str:
    """What DuckDB says, without the picture of the place in the statement."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())
