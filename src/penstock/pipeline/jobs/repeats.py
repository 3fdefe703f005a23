"""Finds the rows of a day that another row of that day repeats, whichever files they are in.

Every row is hashed in tasks, and Spark counts the hashes: memory is not that of the day. Only
where one occurs twice, which is rare, is it looked which of the rows came first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.hashing import mixed
from penstock.lake.identity import SPAN_IDENTITY, identities, repeated
from penstock.lake.reader import opened
from penstock.lake.schemas import ORIGIN, TABLES
from penstock.pipeline.jobs.parcels import parcels
from penstock.pipeline.tasks import run_in_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow.parquet as pq
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from penstock.lake.files import LiveFile
    from penstock.lake.hashing import Hashes
    from penstock.lake.layout import Day
    from penstock.lake.reader import DataFile
    from penstock.lake.target import Target

    RowNumbers: TypeAlias = NDArray[np.int64]
    """Rising numbers of rows in a file, which begin with 0."""
    Repeats: TypeAlias = Mapping[str, RowNumbers]
    """By the paths of the files; a file that is not in it has none."""

_BATCH_ROWS: Final = 32 * 1024
_SUSPECTS_AT_ONCE: Final = 1_000_000


def find_repeats(
    spark: SparkSession, table: str, target: Target, files: Sequence[LiveFile]
) -> Repeats:
    """The rows that are the same as one of their day with a lower origin (`schemas.ORIGIN`).

    What is the same `flush.identity` says. Reads the columns that identify the rows of all the
    files; changes nothing.
    """
    if not files:
        return {}
    work = _Work.of(table, target, files)
    suspects = _suspects(spark, work)
    found: dict[str, RowNumbers] = {}
    for begin in range(0, len(suspects), _SUSPECTS_AT_ONCE):
        some = suspects[begin : begin + _SUSPECTS_AT_ONCE]
        orders = [(work, number, some) for number in range(len(work.parcels))]
        matching = [each for parcel in run_in_tasks(spark, _matching, orders) for each in parcel]
        for path, rows in _later_rows(work, pa.concat_tables(matching)):
            found[path] = np.union1d(found.get(path, rows), rows)
    return found


@dataclass(frozen=True, slots=True)
class _Work:
    """Files, divided among tasks; pickled to them."""

    table: str
    target: Target
    files: tuple[LiveFile, ...]
    parcels: tuple[tuple[int, ...], ...]
    """Places in `files`."""

    @classmethod
    def of(cls, table: str, target: Target, files: Sequence[LiveFile]) -> _Work:
        ordered = sorted(files, key=lambda file: file.path)
        places = {file.path: place for place, file in enumerate(ordered)}
        groups = (tuple(places[file.path] for file in group) for group in parcels(ordered))
        return cls(table, target, tuple(ordered), tuple(groups))

    def identity(self, data: DataFile) -> Sequence[str]:
        """Columns of a file that hold all that makes its rows the same as others."""
        if self.table == "spans" and _has_names(data, self.target.fields(SPAN_IDENTITY[1:])):
            return SPAN_IDENTITY
        return tuple(TABLES[self.table].names)

    @property
    def wanted(self) -> Sequence[str]:
        """Columns that say which of the same rows stays."""
        return (*ORIGIN, *SPAN_IDENTITY) if self.table == "spans" else ORIGIN


@dataclass(frozen=True, slots=True)
class _Hashed:
    """Some rows of a file."""

    place: int
    numbers: RowNumbers
    """Of the rows, in the file."""
    rows: pa.Table
    keys: Hashes


def _suspects(spark: SparkSession, work: _Work) -> NDArray[np.uint64]:
    """The first half of each hash that more than one row has."""

    def hashed(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for piece in _hashed(work, number, ()):
                    keys = pa.array(piece.keys[:, 0].view(np.int64))
                    yield pa.RecordBatch.from_arrays([keys], names=["key"])

    count = len(work.parcels)
    keys = spark.range(0, count, 1, count).mapInArrow(hashed, "key long")
    twice = keys.groupBy("key").count().where("count > 1").select("key")
    return np.asarray(twice.toArrow()["key"].to_numpy()).view(np.uint64)


def _matching(order: tuple[_Work, int, NDArray[np.uint64]]) -> list[pa.Table]:
    """In a task: the rows of a parcel whose hash is suspect, and where they come from."""
    work, number, suspects = order
    found = []
    for piece in _hashed(work, number, work.wanted):
        chosen = np.flatnonzero(np.isin(piece.keys[:, 0], suspects))
        rows = piece.rows.select(work.wanted).take(chosen)
        columns = dict(zip(work.wanted, rows.columns, strict=True))
        columns["place"] = pa.array(np.full(len(chosen), piece.place))
        columns["row"] = pa.array(piece.numbers[chosen])
        for lane in (0, 1):
            columns[f"key_{lane}"] = pa.array(piece.keys[chosen, lane])
        found.append(pa.table(columns))
    return found


def _hashed(work: _Work, number: int, others: Sequence[str]) -> Iterator[_Hashed]:
    """The live rows of a parcel with what identifies them on their day, and other columns."""
    for place in work.parcels[number]:
        first_row, file = 0, work.files[place]
        with opened(work.target, file.path, file.deletes) as data:
            columns = work.target.fields(dict.fromkeys((*work.identity(data), *others)))
            for batch in data.batches(columns, _BATCH_ROWS):
                numbers = np.arange(first_row, first_row + batch.num_rows)
                rows = pa.Table.from_batches([batch])
                if len(data.deleted):
                    numbers = np.setdiff1d(numbers, data.deleted, assume_unique=True)
                    rows = rows.take(numbers - first_row)
                first_row += batch.num_rows
                keys = mixed(identities(work.table, rows) ^ _number_of(file.day))
                yield _Hashed(place, numbers, rows, keys)


def _later_rows(work: _Work, rows: pa.Table) -> Iterator[tuple[str, RowNumbers]]:
    """Of rows with the same hash all but those that came first, by their files."""
    rows = rows.sort_by([(name, "ascending") for name in (*ORIGIN, "place", "row")])
    keys = np.column_stack([rows["key_0"].to_numpy(), rows["key_1"].to_numpy()])
    again = rows.filter(pa.array(repeated(work.table, rows, keys)))
    again = again.select(["place", "row"]).sort_by([("place", "ascending"), ("row", "ascending")])
    begin, numbers = 0, again["row"].to_numpy()
    runs = pc.run_end_encode(again["place"].combine_chunks())
    for place, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield work.files[place].path, numbers[begin:end]
        begin = end


def _has_names(data: DataFile, ids: pa.Schema) -> bool:
    """Whether its footer says that all spans have ids; those without are read as a whole."""
    footer, stored = data.footer, {data.stored_name(field) for field in ids}
    if None in stored:
        return False
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for chunk in (group.column(place) for place in range(group.num_columns)):
            if chunk.path_in_schema in stored and not _is_named(chunk.statistics):
                return False
    return True


def _is_named(ids: pq.Statistics | None) -> bool:
    if ids is None or not ids.has_null_count or ids.null_count or not ids.has_min_max:
        return False
    return bool(str(ids.min).strip("0"))


def _number_of(day: Day) -> np.uint64:
    return np.uint64(day.toordinal() if isinstance(day, date) else 0)
