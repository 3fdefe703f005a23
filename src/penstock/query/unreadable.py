"""Which file of the lake is to blame when a query fails.

DuckDB does not always say: pages and footers that make no sense fail in many ways. A file is left
out only when it cannot be read alone either.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection

_VAGUE: Final = (
    duckdb.IOException,
    duckdb.InternalException,
    duckdb.FatalException,
    duckdb.SerializationException,
    pa.ArrowException,
    OSError,
)
"""No mistake of a statement fails so."""
MISSING: Final = "there is no such file"


def unreadable(error: Exception, paths: Collection[str]) -> dict[str, str]:
    """The files that cannot be read, with the reason; none where the statement is to blame."""
    text = str(error)
    named = [path for path in paths if path in text]
    if not named and (type(error) is duckdb.Error or isinstance(error, _VAGUE)):
        named = [path for path in paths if not Path(path).exists()] or list(paths)
    problems = {path: _problem(path) for path in named}
    return {path: problem for path, problem in problems.items() if problem is not None}


def _problem(path: str) -> str | None:
    """Reads all of it."""
    if not Path(path).exists():
        return MISSING
    with duckdb.connect(":memory:") as alone:
        try:
            alone.execute("SELECT max(hash(r)) FROM read_parquet(?) AS r", [path]).fetchall()
        except duckdb.Error as error:
            return " ".join(str(error).partition("\n\nLINE ")[0].split())
    return None
