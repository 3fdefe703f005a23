"""Rows of data files as the table has them now, a bounded piece at a time.

A file that is older than a column has nulls there; a type that has become wider is cast.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.lake.target import Target

PARTS_OF_A_ROW_GROUP: Final = 16
"""A row group holds no more than some 64 MB of rows, of whatever width: nobody writes more at
once. A 16th of it is then never much."""
_READER_BYTES: Final = 1_000_000
"""Of a reader itself, however small its file is."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that is open."""

    path: str
    parquet: pq.ParquetFile

    @property
    def footer(self) -> pq.FileMetaData:
        """What it says of itself."""
        return self.parquet.metadata

    def batches(
        self, columns: pa.Schema, most_rows: int, row_groups: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of those row groups, or of all, with these columns, in order."""
        there = [name for name in columns.names if name in self.parquet.schema_arrow.names]
        for number in range(self.footer.num_row_groups) if row_groups is None else row_groups:
            count = self.footer.row_group(number).num_rows
            some = min(most_rows, max(count // PARTS_OF_A_ROW_GROUP, 64))
            found = self.parquet.iter_batches(
                some, row_groups=[number], columns=there, use_threads=False
            )
            with naming(self.path):
                for batch in found:
                    yield _fitted(batch, columns)


@contextlib.contextmanager
def opened(target: Target, path: str) -> Iterator[DataFile]:
    """The file; what is read of it comes a whole row group at once. Damaged: it is no Parquet."""
    with target.io.new_input(path).open() as stream:
        with naming(path):
            parquet = pq.ParquetFile(stream, pre_buffer=True)
        with parquet:
            yield DataFile(path, parquet)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Damaged, with the name of the file, where Arrow cannot read it."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from error


def state_bytes(target: Target, path: str) -> int:
    """What a reader of the file holds: the pages of a row group, and some of their rows."""
    with opened(target, path) as file:
        groups = map(file.footer.row_group, range(file.footer.num_row_groups))
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
