"""Reads every page of a Parquet file, one column of one row group at a time.

A flipped bit in a footer can end the process that reads it: the library throws where nobody
catches. So this runs as a process of its own, which `page_reader` starts: a question is a path, and
has several answers, all of them documents.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.children.answering import begin
from penstock.children.frames import decode_document
from penstock.lake.page_reader import PageDamage, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UNREADABLE: Final = (OSError, pa.ArrowException, ValueError, MemoryError)
"""What pyarrow raises where bytes are not what they should be."""


def serve() -> None:
    """Reads one file for each question, to its end."""
    parent = begin()
    for [path] in parent.questions():
        _answer(Path(decode_document(path)), parent.say)
        parent.answer()


def _answer(path: Path, say: Callable[[dict[str, Any]], None]) -> None:
    try:
        say({"footer": _footer(path)})
        for damage in damaged_row_groups(path, lambda size: say({"read": size})):
            say({"damage": asdict(damage)})
    except UNREADABLE as error:
        say({"unreadable": one_line(error)})


def _footer(path: Path) -> dict[str, Any]:
    metadata = pq.read_metadata(path)
    return {
        "rows": metadata.num_rows,
        "row_groups": metadata.num_row_groups,
        "created_by": metadata.created_by,
        "columns": [f"{field.name}: {field.type}" for field in metadata.schema.to_arrow_schema()],
    }


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


if __name__ == "__main__":
    serve()
