"""From what Spark has computed to a day of a rollup: written in tasks, committed by the driver."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext

from penstock.lake.files import check_written, data_file
from penstock.lake.replace import stage_exchange
from penstock.lake.transaction import commit_snapshot
from penstock.lake.writer import write_rows
from penstock.model.errors import CommitConflict
from penstock.pipeline.jobs.basis import Basis, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import date

    from pyiceberg.table import Table
    from pyiceberg.table.update.snapshot import _SnapshotProducer
    from pyspark.sql import DataFrame

    from penstock.lake.files import LiveFile, WrittenFile
    from penstock.lake.target import Target
    from penstock.lake.transaction import SnapshotTransaction

PIECE_BYTES: Final = 64 * 1000 * 1000
"""Rows of so many bytes make a file."""
_PIECES: Final = 1000
_KEY_DIGITS: Final = 24


def write_results(
    frame: DataFrame, target: Target, finish: Callable[[pa.Table], pa.Table]
) -> list[WrittenFile]:
    """Computes the frame, and writes what `finish` makes of its rows, in the tasks that have them.

    Nothing refers to the files yet. Their names are new each time: another run may divide the
    rows among its tasks otherwise, so its files are no substitute for these.
    """
    key = f"r{uuid4().hex[:_KEY_DIGITS]}"

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part = (context.partitionId() if context else 0) * _PIECES
        for number, rows in enumerate(_pieces(batches)):
            files = write_rows(finish(rows), target, key, part + number)
            yield pa.RecordBatch.from_pydict({"files": [pickle.dumps(files)]})

    rows = frame.mapInArrow(write, "files binary").collect()
    return [file for row in rows for file in pickle.loads(row.files)]  # noqa: S301 - our own tasks'


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
            size += batch.nbytes
        if size >= PIECE_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def commit_results(
    table: Table,
    day: date,
    written: Sequence[WrittenFile],
    *,
    replaced: Sequence[LiveFile],
    found: str | None,
    basis: Basis,
) -> None:
    """Puts the files in the place of those that the day had, and says what they come from.

    `found` is the property that said so before. CommitConflict, and nothing is changed, where
    another rollup has computed the day since then: it may know more spans.
    """
    name = name_of(day)

    def stage(transaction: SnapshotTransaction) -> _SnapshotProducer[Any]:
        if table.properties.get(name) != found:
            raise CommitConflict(f"{day} of {table.name()[-1]} was computed by another rollup")
        check_written(table, written)
        transaction.set_properties({name: basis.encoded()})
        return _stage_files(transaction, replaced, written)

    table.refresh()
    commit_snapshot(table, stage)


def _stage_files(
    transaction: SnapshotTransaction,
    replaced: Sequence[LiveFile],
    written: Sequence[WrittenFile],
) -> _SnapshotProducer[Any]:
    if replaced:
        return stage_exchange(transaction, replaced, written, operation="rollup")
    update = transaction.update_snapshot({"penstock.operation": "rollup"})
    with update.fast_append() as append:
        for file in written:
            append.append_data_file(data_file(file))
        return append
