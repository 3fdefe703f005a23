"""What a task of a compaction does: sorted files become one sorted file, in bounded memory.

First the sort columns alone are read, of all files, and sorted: that says from which file each
row of the result comes. Each file is sorted, so the result is made by reading all of them once,
side by side. What is in memory are the sort columns, a few pages of each file, and one row group.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.parquet import ROW_GROUP_ROWS
from penstock.lake.promoted import fill
from penstock.lake.reader import opened
from penstock.lake.writer import DataFileWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.lake.deletes import Deletions
    from penstock.lake.files import WrittenFile
    from penstock.lake.layout import Day
    from penstock.lake.promoted import Promoted
    from penstock.lake.reader import DataFile
    from penstock.lake.target import Target
    from penstock.pipeline.jobs.repeats import RowNumbers

    Numbers: TypeAlias = NDArray[np.int64]

ROW_GROUP_BYTES: Final = 32 * 1000 * 1000
"""A row group ends with so many bytes of rows, or with `ROW_GROUP_ROWS`."""
_BATCH_ROWS: Final = 2048
_FIRST_ROWS: Final = 256
"""Read before it is known how wide rows are."""


@dataclass(frozen=True, slots=True)
class Input:
    """A file, and the rows of it that are not wanted any more."""

    path: str
    unwanted: RowNumbers | None = None
    deletes: Deletions | None = None
    """What was deleted of it."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one day, or of far-off ones, that become one. Pickled to a task."""

    target: Target
    day: Day
    key: str
    """What the name of the new file begins with."""
    inputs: tuple[Input, ...]


def merged(order: Merge) -> WrittenFile | None:
    """Writes the rows that are wanted; None where there are none.

    The file is durable and nothing refers to it. Doing it again writes another.
    """
    with contextlib.ExitStack() as stack:
        merging = _Merging(order, stack)
        with DataFileWriter(order.target, order.day, order.key, part=0) as file:
            written = 0
            for rows in merging.row_groups():
                file.write(rows)
                written += rows.num_rows
            return file.finish() if written else None


class _Merging:
    """The rows of the result, in order; read from all files at once."""

    def __init__(self, order: Merge, stack: contextlib.ExitStack) -> None:
        self._columns = order.target.columns
        self._promoted = order.target.promoted
        self._files = [
            stack.enter_context(opened(order.target, each.path, each.deletes))
            for each in order.inputs
        ]
        self._begins = _begins(self._files)
        keys = self._keys(order.target)
        self._order = _sorted(keys, order.target)
        self._inputs = self._readers(keys)
        self._order = self._order[self._wanted(order)[self._order]]

    def row_groups(self) -> Iterator[pa.Table]:
        """Each as one chunk. No more than one is in memory."""
        gathered = _Gathered(self._columns)
        done = 0
        while done < len(self._order):
            numbers = self._order[done : done + gathered.next_rows]
            self._gather(numbers, gathered)
            done += len(numbers)
            if gathered.is_enough or done == len(self._order):
                yield gathered.taken()

    def _gather(self, numbers: Numbers, gathered: _Gathered) -> None:
        """Reads what these rows need, in the order of the files."""
        places = np.searchsorted(self._begins, numbers, side="right") - 1
        positions = np.empty(len(numbers), np.int64)
        for place in np.unique(places):
            chosen = places == place
            rows = numbers[chosen] - self._begins[place]
            piece, first = self._inputs[place].rows_to(int(rows.max()) + 1)
            positions[chosen] = gathered.add(piece) + rows - first
        gathered.follow(positions)

    def _keys(self, target: Target) -> pa.Table:
        columns = pa.schema([self._columns.field(name) for name in target.sorted_by])
        batches = [b for file in self._files for b in file.batches(columns, ROW_GROUP_ROWS)]
        return pa.Table.from_batches(batches, columns)

    def _readers(self, keys: pa.Table) -> list[_Reader]:
        place_of = np.empty(keys.num_rows, np.int64)
        place_of[self._order] = np.arange(keys.num_rows)
        bounds = zip(self._begins, np.append(self._begins[1:], keys.num_rows), strict=True)
        is_sorted = [bool((np.diff(place_of[begin:end]) > 0).all()) for begin, end in bounds]
        return [
            _Reader(file, self._columns, self._promoted, streamed)
            for file, streamed in zip(self._files, is_sorted, strict=True)
        ]

    def _wanted(self, order: Merge) -> NDArray[np.bool_]:
        wanted = np.ones(len(self._order), bool)
        inputs = zip(order.inputs, self._files, self._begins, strict=True)
        for each, file, begin in inputs:
            wanted[file.deleted + begin] = False
            if each.unwanted is not None:
                wanted[each.unwanted + begin] = False
        return wanted


class _Reader:
    """A file, from its first row to its last; or all of it at once, if it is not sorted."""

    def __init__(
        self, file: DataFile, columns: pa.Schema, promoted: Sequence[Promoted], streamed: bool
    ) -> None:
        self._pieces = _pieces(file, columns, promoted)
        self._streamed = streamed
        self._first = 0
        self._left = columns.empty_table()
        if not streamed:  # nothing of ours writes such a file
            self._left = pa.concat_tables([self._left, *self._pieces])

    def rows_to(self, end: int) -> tuple[pa.Table, int]:
        """The rows before `end` that were not given yet, and the number of the first of them."""
        first = self._first
        if not self._streamed:
            return self._left, first
        count = end - first
        pieces = [self._left] if self._left.num_rows else []
        have = self._left.num_rows
        while have < count:
            pieces.append(next(self._pieces))
            have += pieces[-1].num_rows
        rows = pa.concat_tables(pieces)
        self._left, self._first = rows.slice(count), end
        return rows.slice(0, count), first


class _Gathered:
    """Pieces of files, and where in them the next rows of the result are."""

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self._row_bytes = ROW_GROUP_BYTES / _FIRST_ROWS
        self._clear()

    def _clear(self) -> None:
        self._pieces: list[pa.Table] = []
        self._positions: list[Numbers] = []
        self._read_rows = self._read_bytes = self._rows = 0

    def add(self, piece: pa.Table) -> int:
        """How many rows were there before."""
        before = self._read_rows
        self._pieces.append(piece)
        self._read_rows += piece.num_rows
        self._read_bytes += piece.nbytes
        return before

    def follow(self, positions: Numbers) -> None:
        """The rows of the result that come next, among all that were added."""
        self._positions.append(positions)
        self._rows += len(positions)
        self._row_bytes = max(self._read_bytes / self._read_rows, 1.0)

    @property
    def next_rows(self) -> int:
        """So many more: a quarter of a row group at most, since they may be wider than others."""
        some = int(ROW_GROUP_BYTES / 4 / self._row_bytes)
        return max(min(some, ROW_GROUP_ROWS - self._rows), 1)

    @property
    def is_enough(self) -> bool:
        """For a row group."""
        is_wide = self._read_bytes >= ROW_GROUP_BYTES * 7 // 8
        return is_wide or self._rows >= ROW_GROUP_ROWS

    def taken(self) -> pa.Table:
        """The rows in order; what was gathered is given up, column by column."""
        chunks = {
            name: [chunk for piece in self._pieces for chunk in piece[name].chunks]
            for name in self._columns.names
        }
        positions = pa.array(np.concatenate(self._positions))
        self._clear()
        columns = [pa.concat_arrays(chunks.pop(n)).take(positions) for n in self._columns.names]
        return pa.table(columns, schema=self._columns)


def _pieces(file: DataFile, columns: pa.Schema, promoted: Sequence[Promoted]) -> Iterator[pa.Table]:
    """All rows. Only columns that were promoted after the file was written are filled.

    Invariant: a value that a file has is never made anew, for another engine may have changed it.
    """
    missing = [
        each
        for each in promoted
        if each.column in columns.names and file.stored_name(columns.field(each.column)) is None
    ]
    later = {each.column for each in missing}
    held = pa.schema([field for field in columns if field.name not in later])
    for batch in file.batches(held, _BATCH_ROWS):
        rows = fill(pa.Table.from_batches([batch]), missing)
        yield pa.Table.from_arrays([rows[name] for name in columns.names], schema=columns)


def _begins(files: list[DataFile]) -> Numbers:
    """The number of each file's first row, counted over all of them."""
    counts = [file.footer.num_rows for file in files]
    return np.cumsum([0, *counts[:-1]], dtype=np.int64)


def _sorted(keys: pa.Table, target: Target) -> Numbers:
    """The numbers of the rows in their order; equal ones as they are."""
    by = [(name, "ascending") for name in target.sorted_by]
    return np.asarray(pc.sort_indices(keys, sort_keys=by).to_numpy()).astype(np.int64)
