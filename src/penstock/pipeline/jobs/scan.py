"""Spans for Spark: some columns of some files, without the rows that are there twice.

Tasks read the files with pyarrow, so that Spark needs nothing that knows Iceberg or the store that
they are in, and rows can be left out by their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.reader import opened
from penstock.lake.schemas import TIME
from penstock.pipeline.jobs.parcels import parcels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.files import LiveFile
    from penstock.lake.reader import DataFile
    from penstock.lake.target import Target
    from penstock.pipeline.jobs.repeats import RowNumbers

TIME_US: Final = "time_us"
"""What the column `time` is called as a number."""
_BATCH_ROWS: Final = 16 * 1024
_TYPES: Final[Mapping[pa.DataType, str]] = {pa.string(): "string", pa.int64(): "long"}


@dataclass(frozen=True, slots=True)
class Scan:
    """Which rows; pickled to the tasks."""

    target: Target
    files: tuple[LiveFile, ...]
    repeats: Mapping[str, RowNumbers]
    begin_us: int
    end_us: int
    """Rows from `begin_us` on and before `end_us`, in microseconds since 1970."""


def spans(spark: SparkSession, scan: Scan, columns: tuple[str, ...]) -> DataFrame:
    """The columns of those rows, and `time_us`. Read again by each action."""
    schema = scan.target.fields(("time", *columns))
    groups = parcels(scan.files)
    declared = [f"{field.name} {_TYPES[field.type]}" for field in schema if field.name != "time"]

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for file in groups[number]:
                    yield from _rows(scan, file, schema)

    # Without files one task that has nothing to read: the frame has its columns.
    numbers = spark.range(0, len(groups), 1, max(len(groups), 1))
    return numbers.mapInArrow(read, ", ".join([f"{TIME_US} long", *declared]))


def _rows(scan: Scan, file: LiveFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    unwanted = scan.repeats.get(file.path, np.zeros(0, np.int64))
    with opened(scan.target, file.path, file.deletes) as data:
        unwanted = np.union1d(unwanted, data.deleted)
        time = data.stored_name(schema.field("time"))
        first_row = 0
        for number in range(data.footer.num_row_groups):
            count = data.footer.row_group(number).num_rows
            if _may_have(data, number, scan, time):
                begin = first_row
                for batch in data.batches(schema, _BATCH_ROWS, [number]):
                    yield _wanted(scan, batch, unwanted - begin)
                    begin += batch.num_rows
            first_row += count


def _wanted(scan: Scan, batch: pa.RecordBatch, unwanted: RowNumbers) -> pa.RecordBatch:
    """Those rows of the batch, with the time as a number."""
    times = batch.column("time").cast(TIME).cast(pa.int64())
    inside = pc.and_(
        pc.greater_equal(times, pa.scalar(scan.begin_us)), pc.less(times, pa.scalar(scan.end_us))
    )
    wanted = inside.fill_null(False).to_numpy(zero_copy_only=False).copy()
    wanted[unwanted[(unwanted >= 0) & (unwanted < len(wanted))]] = False
    place = batch.schema.get_field_index("time")
    rows = batch.set_column(place, TIME_US, times).filter(pa.array(wanted))
    return rows.replace_schema_metadata(None)


def _may_have(data: DataFile, number: int, scan: Scan, time: str | None) -> bool:
    """Whether the row group may have rows of that time, by its footer."""
    group = data.footer.row_group(number)
    chunks = (group.column(place) for place in range(group.num_columns))
    chunk = next((each for each in chunks if each.path_in_schema == time), None)
    bounds = None if chunk is None else chunk.statistics
    if bounds is None or not bounds.has_min_max:
        return True
    return bool(bounds.max_raw >= scan.begin_us and bounds.min_raw < scan.end_us)
