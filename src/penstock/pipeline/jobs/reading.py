"""Rows of data files as the table has them now, a bounded piece at a time.

A file that is older than a column has nulls there; a type that has become wider is cast.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.lake.target import Target

PARTS_OF_A_ROW_GROUP: Final = 16
"""A row group holds no more than some 64 MB of rows, of whatever width: nobody writes more at
once. A 16th of it is then never much."""
_READER_BYTES: Final = 1_000_000
"""Of a reader itself, however small its file is."""


@contextlib.contextmanager
def opened(target: Target, path: str) -> Iterator[pq.ParquetFile]:
    """The file; what is read of it comes a whole row group at once."""
    with (
        target.io.new_input(path).open() as stream,
        pq.ParquetFile(stream, pre_buffer=True) as file,
    ):
        yield file


def batches(
    file: pq.ParquetFile, columns: pa.Schema, most_rows: int, row_groups: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The rows of those row groups, with these columns, in order."""
    there = [name for name in columns.names if name in file.schema_arrow.names]
    for number in row_groups:
        count = file.metadata.row_group(number).num_rows
        some = min(most_rows, max(count // PARTS_OF_A_ROW_GROUP, 64))
        for batch in file.iter_batches(some, row_groups=[number], columns=there, use_threads=False):
            yield _fitted(batch, columns)


def all_batches(
    file: pq.ParquetFile, columns: pa.Schema, most_rows: int
) -> Iterator[pa.RecordBatch]:
    """All rows."""
    return batches(file, columns, most_rows, range(file.num_row_groups))


def state_bytes(target: Target, path: str) -> int:
    """What a reader of the file holds: the pages of a row group, and some of their rows."""
    with opened(target, path) as file:
        footer = file.metadata
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        largest = max((group.total_byte_size for group in groups), default=0)
        return 2 * int(largest) + _READER_BYTES


def _fitted(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(columns, check_metadata=False):
        return pa.RecordBatch.from_arrays(batch.columns, schema=columns)
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
