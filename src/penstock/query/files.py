"""Files of the lake, as DuckDB is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.query.declared import declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.lake.glance import ColdFile


def listed(files: Sequence[ColdFile], *, rows: bool = False) -> str:
    """What to select from. A column that a file does not have yet is null there.

    With `rows`, the number of each row in its file is a column.
    """
    paths = ", ".join("'" + file.path.replace("'", "''") + "'" for file in files)
    ordered = sorted(files, key=lambda file: file.sequence)
    columns = declared([file.path for file in ordered]) or "union_by_name = true"
    options = f"{columns}, hive_partitioning = false"
    return f"read_parquet([{paths}], {options}{', file_row_number = true' if rows else ''})"


def without_rows(file: ColdFile, rows: Iterable[int]) -> str:
    """What to select from for a file without some of its rows."""
    numbers = ", ".join(map(str, sorted(rows)))
    return f"{listed([file], rows=True)} WHERE file_row_number NOT IN ({numbers})"
