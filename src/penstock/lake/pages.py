"""Reads every page of a Parquet file, one column of one row group at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

UNREADABLE: Final = (OSError, pa.ArrowException, ValueError, MemoryError)
"""What pyarrow raises where bytes are not what they should be."""


@dataclass(frozen=True, slots=True)
class PageDamage:
    """A row group that cannot be read to its end."""

    position: int
    """Where the first column begins that cannot be read."""
    detail: str
    rows: int
    """Of the row group."""


def damaged_row_groups(
    path: Path, progress: Callable[[int], object] | None = None
) -> Iterator[PageDamage]:
    """Every row group with a column whose pages do not read.

    Holds one column of one row group. Checksums of pages are verified where the file has them.
    `progress` is called with the bytes of each column that was tried. What `UNREADABLE` has is
    raised where the footer cannot be read.
    """
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for number in range(file.num_row_groups):
            damage = _first_damage(file, number, progress or (lambda _: None))
            if damage is not None:
                yield damage


def _first_damage(
    file: pq.ParquetFile, number: int, progress: Callable[[int], object]
) -> PageDamage | None:
    group = file.metadata.row_group(number)
    for at in range(group.num_columns):
        column = group.column(at)
        progress(column.total_compressed_size)
        problem = _problem(file, number, column.path_in_schema, group.num_rows)
        if problem is not None:
            position = column.dictionary_page_offset or column.data_page_offset
            text = f"{column.path_in_schema} of row group {number}: {problem}"
            return PageDamage(position, text, group.num_rows)
    return None


def _problem(file: pq.ParquetFile, number: int, column: str, rows: int) -> str | None:
    try:
        found = file.read_row_group(number, columns=[column], use_threads=False).num_rows
    except UNREADABLE as error:
        return one_line(error)
    return None if found == rows else f"{found} rows where there should be {rows}"


def one_line(error: BaseException) -> str:
    """What an error says, in one line that is not too long."""
    return " ".join(str(error).split())[:200] or type(error).__name__
