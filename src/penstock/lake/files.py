"""Data files: as a task has written them, and as a table has them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record

from penstock.lake.arrow import schema_of
from penstock.model.errors import CommitConflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import StatisticsCollector
    from pyiceberg.table import Table

    from penstock.lake.target import Target

_EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of a table. `day` is None for rows without a time."""

    path: str
    rows: int
    bytes: int
    day: date | None
    spec_id: int


@dataclass(frozen=True, slots=True)
class WrittenFile(LiveFile):
    """A data file that no table has yet, with all that its commit needs to know.

    Plain values, so that it travels from a task to the driver.
    """

    sort_order_id: int
    statistics: Mapping[str, Any]

    @classmethod
    def of(
        cls, path: str, size: int, day: date | None, metadata: pq.FileMetaData, target: Target
    ) -> WrittenFile:
        """What the footer of the file says."""
        statistics = _statistics(metadata, target)
        rows = metadata.num_rows
        return cls(path, rows, size, day, target.spec_id, target.sort_order_id, statistics)


def live_files(table: Table, row_filter: str = "") -> Iterator[LiveFile]:
    """The files of the table as it was last loaded that may have rows of the filter.

    Reads the manifests that may name some. A file of another partition spec is passed over, since
    nothing here has written it.
    """
    for task in table.scan(row_filter or ALWAYS_TRUE).plan_files():
        file = live_file(table, task.file)
        if file is not None:
            yield file


def files_of_day(table: Table, day: date | None) -> list[LiveFile]:
    """The files of one day, or of the rows without a time, by their paths."""
    found = (file for file in live_files(table, _rows_of(table, day)) if file.day == day)
    return sorted(found, key=lambda file: file.path)


def files_before(table: Table, day: date) -> list[LiveFile]:
    """The files of earlier days, and those of the rows without a time."""
    # Not by one filter with OR: pyiceberg then compares the day of a file that has none.
    earlier = live_files(table, f"{_time_column(table)} < '{day}T00:00:00+00:00'")
    dated = [file for file in earlier if file.day is not None and file.day < day]
    return [*dated, *files_of_day(table, None)]


def live_file(table: Table, file: DataFile) -> LiveFile | None:
    """A file of a manifest; None where its partition is not a day."""
    fields = table.specs()[file.spec_id].fields
    if len(fields) != 1 or not isinstance(fields[0].transform, DayTransform):
        return None
    number = file.partition[0]
    day = None if number is None else _EPOCH + timedelta(days=number)
    return LiveFile(file.file_path, file.record_count, file.file_size_in_bytes, day, file.spec_id)


def data_file(file: LiveFile) -> DataFile:
    """The file as Iceberg's manifests have it; without statistics where we have none."""
    number = None if file.day is None else (file.day - _EPOCH).days
    statistics = file.statistics if isinstance(file, WrittenFile) else {"record_count": file.rows}
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(number),
        file_size_in_bytes=file.bytes,
        sort_order_id=file.sort_order_id if isinstance(file, WrittenFile) else None,
        equality_ids=None,
        key_metadata=None,
        **statistics,
    )
    made.spec_id = file.spec_id
    return made


def check_written(table: Table, files: Iterable[WrittenFile]) -> None:
    """CommitConflict where the table cannot take the files any more; they are written again."""
    for file in files:
        if file.spec_id != table.spec().spec_id:
            raise CommitConflict(f"{file.path} was written for another partition spec")
        if not table.io.new_input(file.path).exists():
            raise CommitConflict(f"{file.path} is gone")


def _rows_of(table: Table, day: date | None) -> str:
    column = _time_column(table)
    if day is None:
        return f"{column} IS NULL"
    begin, end = f"{day}T00:00:00+00:00", f"{day + timedelta(days=1)}T00:00:00+00:00"
    return f"{column} >= '{begin}' AND {column} < '{end}'"


def _time_column(table: Table) -> str:
    return table.schema().find_column_name(table.spec().fields[0].source_id) or ""


def _statistics(metadata: pq.FileMetaData, target: Target) -> Mapping[str, Any]:
    plan, numbers = _plan(target.schema_json, target.metrics)
    found = data_file_statistics_from_parquet_metadata(metadata, plan, numbers)
    statistics = found.to_serialized_dict()
    counted = statistics["value_counts"]
    sizes = {
        number: size for number, size in statistics["column_sizes"].items() if number in counted
    }
    return {**statistics, "column_sizes": sizes}


@lru_cache(maxsize=16)
def _plan(
    schema_json: str, metrics: tuple[tuple[str, str], ...]
) -> tuple[dict[int, StatisticsCollector], dict[str, int]]:
    schema = schema_of(schema_json)
    return compute_statistics_plan(schema, dict(metrics)), parquet_path_to_id_mapping(schema)
