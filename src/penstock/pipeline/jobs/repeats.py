"""Finds the rows of a day that another row of that day repeats, whichever files they are in.

Every row is hashed in tasks, and Spark counts the hashes: memory is not that of the day. Only
where one occurs twice, which is rare, is it looked which of the rows came first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.pipeline.flush.hashing import mixed
from penstock.pipeline.flush.identity import SPAN_IDENTITY, identities, repeated
from penstock.pipeline.jobs.parcels import parcels
from penstock.pipeline.jobs.reading import all_batches, opened
from penstock.pipeline.tasks import run_in_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import date

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from penstock.lake.files import LiveFile
    from penstock.lake.target import Target
    from penstock.pipeline.flush.hashing import Hashes

    RowNumbers: TypeAlias = NDArray[np.int64]
    """Rising numbers of rows in a file, which begin with 0."""
    Repeats: TypeAlias = Mapping[str, RowNumbers]
    """By the paths of the files; a file that is not in it has none."""

_ORIGIN: Final = ("_topic", "_partition", "_offset")
_BATCH_ROWS: Final = 32 * 1024
_SUSPECTS_AT_ONCE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Work:
    """Files, divided among tasks."""

    table: str
    target: Target
    parcels: tuple[tuple[LiveFile, ...], ...]


def find_repeats(
    spark: SparkSession, table: str, target: Target, files: Sequence[LiveFile]
) -> Repeats:
    """The rows that are the same as one of their day with a lower topic, partition and offset.

    What is the same `flush.identity` says. Reads the columns that identify the rows of all the
    files; changes nothing.
    """
    work = _Work(table, target, tuple(map(tuple, parcels(files))))
    suspects = _suspects(spark, work)
    found: dict[str, RowNumbers] = {}
    for begin in range(0, len(suspects), _SUSPECTS_AT_ONCE):
        some = np.sort(suspects[begin : begin + _SUSPECTS_AT_ONCE])
        orders = [(work, number, some) for number in range(len(work.parcels))]
        for path, rows in _later_rows(work, run_in_tasks(spark, _matching, orders)):
            found[path] = np.union1d(found.get(path, rows), rows)
    return found


def _suspects(spark: SparkSession, work: _Work) -> NDArray[np.uint64]:
    """Half of each hash that more than one row has."""
    count = len(work.parcels)
    if not count:
        return np.zeros(0, np.uint64)

    def hashed(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for _, _, keys in _hashed(work, number, _identity(work)):
                    yield pa.RecordBatch.from_pydict({"key": keys[:, 0].view(np.int64)})

    keys = spark.range(0, count, 1, count).mapInArrow(hashed, "key long")
    twice = keys.groupBy("key").count().where("count > 1").select("key")
    return np.asarray(twice.toArrow()["key"].to_numpy()).view(np.uint64)


def _matching(order: tuple[_Work, int, NDArray[np.uint64]]) -> pa.Table:
    """In a task: the rows of a parcel whose hash is suspect, and where they come from."""
    work, number, suspects = order
    names = [*_identity(work), *(name for name in _ORIGIN if name not in _identity(work))]
    found = []
    row = 0
    before = ""
    for file, rows, keys in _hashed(work, number, names):
        row = 0 if file.path != before else row
        chosen = np.flatnonzero(np.isin(keys[:, 0], suspects))
        origins = rows.select(list(_ORIGIN)).take(pa.array(chosen))
        for name, column in {
            "path": pa.array([file.path] * len(chosen), pa.string()),
            "row": pa.array(chosen + row),
            "key_0": pa.array(keys[chosen, 0]),
            "key_1": pa.array(keys[chosen, 1]),
        }.items():
            origins = origins.append_column(name, column)
        found.append(origins)
        row, before = row + rows.num_rows, file.path
    return pa.concat_tables(found)


def _hashed(
    work: _Work, number: int, names: Sequence[str]
) -> Iterator[tuple[LiveFile, pa.Table, Hashes]]:
    """The rows of a parcel, piece by piece, with what identifies them on their day."""
    columns = pa.schema([work.target.columns.field(name) for name in names])
    for file in work.parcels[number]:
        with opened(work.target, file.path) as data:
            for batch in all_batches(data, columns, _BATCH_ROWS):
                rows = pa.Table.from_batches([batch])
                keys = identities(work.table, rows)
                yield file, rows, mixed(keys ^ np.uint64(_ordinal(file.day)))


def _later_rows(work: _Work, matching: list[pa.Table]) -> Iterator[tuple[str, RowNumbers]]:
    """Of rows with the same hash all but those that came first, by their files."""
    order = [(name, "ascending") for name in (*_ORIGIN, "path", "row")]
    rows = pa.concat_tables(matching).sort_by(order)
    keys = np.column_stack([rows["key_0"].to_numpy(), rows["key_1"].to_numpy()])
    again = rows.filter(pa.array(repeated(work.table, rows, keys)))
    paths, numbers = again["path"].to_numpy(), again["row"].to_numpy()
    for path in np.unique(paths):
        yield str(path), np.sort(numbers[paths == path])


def _identity(work: _Work) -> Sequence[str]:
    return SPAN_IDENTITY if work.table == "spans" else work.target.columns.names


def _ordinal(day: date | None) -> Any:
    return 0 if day is None else day.toordinal()
