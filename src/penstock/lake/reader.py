"""The live rows of a data file, as its table has them now.

Whoever reads data files with Arrow reads them here. Rows keep the numbers that they have in
the file; `deleted` says which of them do not count any more. Columns are found by their numbers
(see `projection`), a bounded piece at a time.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.deleted import deleted_in
from penstock.lake.projection import matching, projected
from penstock.lake.schemas import SPANS
from penstock.lake.shown import ROW
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import BinaryIO, TypeAlias

    from penstock.lake.deletes import Deletions, Opener, RowNumbers
    from penstock.lake.glance import ColdFile
    from penstock.lake.target import Target

    Times: TypeAlias = tuple[int, int]
    """The first and the last, in microseconds since 1970."""

PARTS_OF_A_ROW_GROUP: Final = 16
"""A row group holds no more than some 64 MB of rows, of whatever width: nobody writes more at
once. A 16th of it is then never much."""
_READER_BYTES: Final = 1_000_000
"""Of a reader itself, however small its file is."""
_NONE: Final = np.zeros(0, np.int64)
TIME: Final = "time"
_US: Final = pa.timestamp("us", "UTC")


def _open(path: str) -> BinaryIO:
    return Path(path).open("rb")


@dataclass(frozen=True)
class DataFile:
    """A data file that is open."""

    path: str
    parquet: pq.ParquetFile
    deletes: Deletions | None = None
    opener: Opener = field(default=_open, repr=False)

    @property
    def footer(self) -> pq.FileMetaData:
        """What it says of itself."""
        return self.parquet.metadata

    @cached_property
    def held(self) -> pa.Schema:
        """Its columns, by the names that it has for them."""
        return self.parquet.schema_arrow

    @cached_property
    def deleted(self) -> RowNumbers:
        """The rows that were deleted. Damaged: a delete file cannot be read."""
        if self.deletes is None:
            return _NONE
        with naming(self.path):
            return deleted_in(self.parquet, self.deletes, self.opener)

    def stored_name(self, column: pa.Field) -> str | None:
        """What the file calls a column of the table; None where it does not have it."""
        [found] = matching(self.held, pa.schema([column]))
        return None if found is None else found.name

    def batches(
        self, columns: pa.Schema, most_rows: int, row_groups: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of those row groups, or of all, with these columns, in order.

        Deleted ones are among them, so that the numbers of rows stay what they are.
        """
        there = [each.name for each in matching(self.held, columns) if each is not None]
        for number in range(self.footer.num_row_groups) if row_groups is None else row_groups:
            count = self.footer.row_group(number).num_rows
            some = min(most_rows, max(count // PARTS_OF_A_ROW_GROUP, 64))
            found = self.parquet.iter_batches(
                some, row_groups=[number], columns=there, use_threads=False
            )
            with naming(self.path):
                for batch in found:
                    yield projected(batch, columns)

    def row_group(self, columns: pa.Schema, number: int) -> pa.Table:
        """All rows of one at once, deleted ones among them: for a few narrow columns."""
        there = [each.name for each in matching(self.held, columns) if each is not None]
        with naming(self.path):
            found = self.parquet.read_row_group(number, there, use_threads=False)
        return pa.Table.from_batches([projected(b, columns) for b in found.to_batches()], columns)

    def row_groups(self, column: pa.Field, times_us: Times | None) -> Iterator[tuple[int, int]]:
        """Those that can have one of these times in the column, each with its first row."""
        stored, first = self.stored_name(column), 0
        is_us = stored is not None and self.held.field(stored).type.equals(_US)
        for number in range(self.footer.num_row_groups):
            group = self.footer.row_group(number)
            if times_us is None or not is_us or _may_have(group, stored, times_us):
                yield number, first
            first += group.num_rows

    def rows(self, columns: pa.Schema) -> pa.Table:
        """All live rows."""
        table = pa.Table.from_batches(self.batches(columns, self.footer.num_rows or 1), columns)
        return without_numbers(table, self.deleted)


def _may_have(group: pq.RowGroupMetaData, name: str | None, times_us: Times) -> bool:
    columns = (group.column(number) for number in range(group.num_columns))
    found = next((each.statistics for each in columns if each.path_in_schema == name), None)
    if found is None or not found.has_min_max or found.null_count != 0:
        return True
    return bool(found.min_raw <= times_us[1] and times_us[0] <= found.max_raw)


def spans_within(file: ColdFile, names: Sequence[str], times_us: Times | None) -> pa.Table:
    """The live spans of a file of a lake on this machine that have one of these times, or none.

    With these columns, with `time`, and with the number of each row in its file.
    """
    with opened_here(file) as data:
        there = data.held if file.columns is None else file.columns.schema
        columns = pa.schema([_field(there, name) for name in (*names, TIME)])
        parts = []
        for number, first in data.row_groups(columns.field(TIME), times_us):
            rows = data.row_group(columns, number)
            numbers = np.arange(first, first + rows.num_rows)
            rows = rows.append_column(ROW, pa.array(numbers))
            if len(data.deleted):
                rows = rows.filter(pa.array(~np.isin(numbers, data.deleted)))
            parts.append(rows_within(rows, times_us))
        empty = columns.append(pa.field(ROW, pa.int64())).empty_table()
        return pa.concat_tables([empty, *parts])


def _field(there: pa.Schema, name: str) -> pa.Field:
    return there.field(name) if name in there.names else SPANS.field(name)


def rows_within(rows: pa.Table, times_us: Times | None) -> pa.Table:
    """Those that have one of these times, or none."""
    if times_us is None:
        return rows
    first, last = (pa.scalar(each, pa.int64()) for each in times_us)
    at = rows[TIME].cast(_US).cast(pa.int64())
    inside = pc.and_(pc.greater_equal(at, first), pc.less_equal(at, last)).fill_null(True)
    return rows if pc.all(inside).as_py() is not False else rows.filter(inside)


def without_numbers(rows: pa.Table, numbers: RowNumbers) -> pa.Table:
    """The rows but those with these numbers."""
    if not len(numbers):
        return rows
    wanted = np.ones(rows.num_rows, bool)
    wanted[numbers] = False
    return rows.filter(pa.array(wanted))


@contextlib.contextmanager
def opened(target: Target, path: str, deletes: Deletions | None = None) -> Iterator[DataFile]:
    """The file; what is read of it comes a whole row group at once. Damaged: it is no Parquet."""

    def opener(name: str) -> pa.NativeFile:
        return target.io.new_input(name).open()

    with opener(path) as stream:
        with naming(path):
            parquet = pq.ParquetFile(stream, pre_buffer=True)
        with parquet:
            yield DataFile(path, parquet, deletes, opener)


@contextlib.contextmanager
def opened_here(file: ColdFile) -> Iterator[DataFile]:
    """A file of a lake on this machine."""
    with naming(file.path), pq.ParquetFile(file.path) as parquet:
        yield DataFile(file.path, parquet, file.deletes)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Damaged, with the name of the file, where Arrow cannot read it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from error


def state_bytes(target: Target, path: str) -> int:
    """What a reader of the file holds: the pages of a row group, and some of their rows."""
    with opened(target, path) as file:
        groups = map(file.footer.row_group, range(file.footer.num_row_groups))
        largest = max((group.total_byte_size for group in groups), default=0)
        return 2 * int(largest) + _READER_BYTES


def deleted_count(target: Target, path: str, deletes: Deletions | None) -> int:
    """How many rows of a file are deleted."""
    with opened(target, path, deletes) as file:
        return len(file.deleted)


def deleted_rows(file: ColdFile) -> RowNumbers:
    """Those of a file of a lake on this machine; neither it nor its deletes ever change."""
    return _NONE if file.deletes is None else _deleted_here(file)


@lru_cache(maxsize=4096)
def _deleted_here(file: ColdFile) -> RowNumbers:
    with opened_here(file) as data:
        return data.deleted


@dataclass(frozen=True, slots=True)
class Counted:
    """What files of a table have; whoever tells people how many rows there are has it from here."""

    rows: int
    """That count: deleted ones are not among them."""
    deleted: int
    """Several deletes of the same row are one."""
    delete_files: int
    """That apply to one of the files."""


def counted(files: Iterable[ColdFile]) -> Counted:
    """Of a lake on this machine. Damaged, or an OSError: a delete file cannot be read."""
    some = list(files)
    deleted = sum(len(deleted_rows(file)) for file in some)
    named = {each.path for file in some if file.deletes for each in file.deletes.files}
    return Counted(sum(file.rows for file in some) - deleted, deleted, len(named))
