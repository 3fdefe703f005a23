"""Names and texts as SQL has them: nothing that others chose goes into a statement unquoted.

Invariant: whatever a name or a text has in it, the engine reads it as that one name or text.
"""

from __future__ import annotations

from penstock.lake.dialects import DUCKDB


def identifier(name: str) -> str:
    """The name of a column, a table or a field of a struct."""
    return DUCKDB.identifier(name)


def literal(text: str) -> str:
    """A text as a value."""
    return "'" + text.replace("'", "''") + "'"
