"""Rows of one table to Parquet files, one for each day, and one for many that are far off.

The files are durable when `write_rows` returns and no reader sees them before they are committed.
Every call writes files of new names, so tasks may be retried and may run twice at once: what came
back to the driver is committed, the rest is left to `orphans`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.arrow import conform, numbered, sharing
from penstock.lake.durable import DurableFile
from penstock.lake.far_off import by_day, day_of_number
from penstock.lake.files import WrittenFile
from penstock.lake.layout import data_path, new_attempt
from penstock.lake.parquet import ROW_GROUP_ROWS, leaf_paths, writer_options
from penstock.lake.promoted import fill
from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from penstock.lake.far_off import Arrival
    from penstock.lake.layout import Day
    from penstock.lake.target import Target

_DAY: Final = "__day"


def write_rows(
    rows: pa.Table, target: Target, key: str, part: int, arrival: Arrival | None = None
) -> list[WrittenFile]:
    """Writes the rows to the file of their day each, sorted as the table is.

    `arrival` says which days have none of their own; without it all have. `key` and `part` name
    the files, and the attempt does (see `layout`): calling it again with the same ones writes
    others. An error leaves at most files that nothing refers to.
    """
    written = []
    for day, some in split_by_day(rows, target, arrival):
        with DataFileWriter(target, day, key, part) as file:
            file.write(some)
            written.append(file.finish())
    return written


def split_by_day(
    rows: pa.Table, target: Target, arrival: Arrival | None = None
) -> Iterator[tuple[Day, pa.Table]]:
    """The rows of each day, sorted as the table is; those without a time last.

    Promoted columns that they do not have are filled.
    """
    if not rows.num_rows:
        return
    rows = conform(_kept(fill(rows, target.promoted), target), target.columns)
    time = target.time_column
    days = by_day(rows, time) if arrival is None else arrival.parted(rows, time)
    keys = {_DAY: days} | {name: rows[name] for name in target.sorted_by}
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    if not _is_sorted(order):
        rows, days = _in_order(rows, order), days.take(order)
    begin = 0
    runs = pc.run_end_encode(days.combine_chunks())
    if len(runs.values) > 1:  # a file's dictionaries hold what the file has, and no more
        rows = rows.cast(numbered(rows.column_names, target.columns))
    day_of = day_of_number if arrival is None else arrival.day_of
    for day, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield day_of(day), rows.slice(begin, end - begin)
        begin = end


def _kept(rows: pa.Table, target: Target) -> pa.Table:
    """Without the columns that somebody dropped from the table."""
    gone = [name for name in rows.column_names if name in target.dropped]
    return rows.drop_columns(gone) if gone else rows


def _in_order(rows: pa.Table, order: pa.Array) -> pa.Table:
    """Column by column, so that only one of them is there three times."""
    columns = [column.combine_chunks().take(order) for column in rows.itercolumns()]
    return pa.Table.from_arrays(columns, schema=rows.schema)


class DataFileWriter:
    """One data file, written piece by piece: sorted rows of one day, or of far-off ones.

    Memory is that of a piece and a row group's pages. Leaving the `with` block without `finish`
    leaves nothing behind, or half of a file where the object store does not answer any more.
    """

    def __init__(self, target: Target, day: Day, key: str, part: int) -> None:
        self._target = target
        self._day = day
        self._path = data_path(target.location, day, key, part, new_attempt())
        self._sink = target.io.new_output(self._path).create()
        self._writer: pq.ParquetWriter | None = None
        self._footer: list[pq.FileMetaData] = []
        self._finished = False

    def write(self, rows: pa.Table) -> None:
        """Adds rows as they are; the first ones decide how the columns are encoded."""
        rows = conform(_kept(rows, self._target), self._target.columns)
        if self._writer is None:
            self._writer = self._begin(rows)
        self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)

    def finish(self) -> WrittenFile:
        """Ends the file, gives it its name and says what is in it."""
        if self._writer is None:
            raise InvalidArgument("a data file without rows")
        self._writer.close()
        size = self._sink.tell()
        [footer] = self._footer
        self._sink.close()
        self._finished = True
        return WrittenFile.of(self._path, size, self._day, footer, self._target)

    def _begin(self, rows: pa.Table) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            self._sink,
            sharing(numbered(rows.column_names, self._target.columns), rows.schema),
            metadata_collector=self._footer,
            sorting_columns=self._sorting(rows.schema),
            **writer_options(rows),
        )

    def _sorting(self, schema: pa.Schema) -> list[pq.SortingColumn]:
        paths = list(leaf_paths(schema))
        return [pq.SortingColumn(paths.index(name)) for name in self._target.sorted_by]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Gives up a file that was not finished."""
        if self._writer is not None:
            self._writer.is_open = False  # it would write a footer when it is forgotten
        if not self._finished:
            self._discard()

    def _discard(self) -> None:
        if isinstance(self._sink, DurableFile):
            self._sink.discard()
            return
        # Closing is all that can be done to an upload, and makes an object of its half. Nobody
        # else has this name, so it can go; where it cannot, it expires with the other orphans.
        with contextlib.suppress(OSError):
            self._sink.close()
        with contextlib.suppress(OSError):
            self._target.io.delete(self._path)


def _is_sorted(order: pa.Array) -> bool:
    """Whether taking in this order changes nothing."""
    steps = pc.pairwise_diff(order.cast(pa.int64()))
    return bool(order[0].as_py() == 0 and pc.all(pc.equal(steps, 1)).as_py() is not False)
