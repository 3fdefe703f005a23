"""Files of the lake, as DuckDB is told of them: live rows, and columns by their present names.

Files that nobody but Penstock has changed are one call of `read_parquet`. Where columns had other
names, the names are put together; where only a file itself can say which column is which, files of
the same shape are read together, each column by its number. Deleted rows are left out by their
numbers, here and nowhere else: whoever reads files by DuckDB reads them by `listed`.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.parquet as pq

from penstock.lake.reader import deleted_rows
from penstock.lake.shown import ROW, can_be_asked_for
from penstock.query.declared import by_other_names, declared
from penstock.query.quoting import literal
from penstock.query.shapes import by_names, by_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from penstock.lake.columns import Columns
    from penstock.lake.glance import ColdFile

_FEW_ROWS: Final = 1000
"""Numbers up to so many are written out; beyond them a bit for each row of the file is shorter."""


def listed(files: Sequence[ColdFile], *, rows: bool = False) -> str:
    """What to select from. A column that a file does not have yet is null there.

    With `rows`, the number of each row in its file is a column.
    """
    whole = [file for file in files if file.deletes is None]
    parts = [_read(some, rows) for some in _alike(whole)] if whole else []
    parts += [without_rows(file, (), rows=rows) for file in files if file.deletes is not None]
    if len(parts) == 1:
        return parts[0]
    return f"({' UNION ALL BY NAME '.join(f'FROM {part}' for part in parts)})"


def without_rows(file: ColdFile, rows_out: Iterable[int], *, rows: bool = True) -> str:
    """What to select from for a file without some of its rows, and without the deleted ones."""
    numbers = np.union1d(np.array(sorted(rows_out), np.int64), deleted_rows(file))
    source = _read([file], rows=True)
    columns = "*" if rows else f"* EXCLUDE ({ROW})"
    where = f" WHERE {_is_other(numbers, file.rows)}" if len(numbers) else ""
    return f"(SELECT {columns} FROM {source}{where})"  # noqa: S608 - our own names


def _is_other(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], count: int) -> str:
    if len(numbers) <= _FEW_ROWS:
        return f"{ROW} NOT IN ({', '.join(map(str, numbers.tolist()))})"
    bits = np.zeros(count, np.uint8)
    bits[numbers] = 1
    return f"get_bit('{(bits + ord('0')).tobytes().decode()}'::BIT, {ROW}::INTEGER) = 0"


def _alike(files: Sequence[ColdFile]) -> list[list[ColdFile]]:
    """Groups that are read the same way."""
    columns = files[0].columns
    if columns is None or columns.names is not None:
        return [list(files)]
    groups: dict[pa.Schema, list[ColdFile]] = defaultdict(list)
    for file in files:
        groups[_held(file.path)].append(file)
    return list(groups.values())


def _read(files: Sequence[ColdFile], rows: bool) -> str:
    columns: Columns | None = files[0].columns
    if columns is None:
        ordered = sorted(files, key=lambda file: file.sequence)
        return _parquet(files, rows, declared([file.path for file in ordered]))
    also = (ROW,) if rows else ()
    if columns.names is not None:
        return by_names(columns, _parquet(files, rows), also)
    held = _held(files[0].path)
    if can_be_asked_for(held.names):
        return by_numbers(columns.schema, held, _parquet(files, rows), also)
    held, option = by_other_names(held, columns.schema, files[0].path)
    return by_numbers(columns.schema, held, _parquet(files, rows, option), also)


@lru_cache(maxsize=100_000)
def _held(path: str) -> pa.Schema:
    """The columns of a file, by its own footer; files never change."""
    return pq.read_schema(path)


def _parquet(files: Sequence[ColdFile], rows: bool, schema: str | None = None) -> str:
    quoted = ", ".join(literal(file.path) for file in files)
    options = f"{schema or 'union_by_name = true'}, hive_partitioning = false"
    return f"read_parquet([{quoted}], {options}{', file_row_number = true' if rows else ''})"
