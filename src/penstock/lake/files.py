"""Data files: as a task has written them, and as a table has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import ALWAYS_TRUE, ManifestGroupPlanner
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record

from penstock.lake.arrow import schema_of
from penstock.lake.columns import own_numbers
from penstock.lake.deletes import check_readable, plain_path
from penstock.lake.glance import table_columns
from penstock.lake.layout import FarOff, far_off_of
from penstock.lake.manifests import delete_index, global_specs
from penstock.lake.promoted import of_properties
from penstock.model.errors import CommitConflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import StatisticsCollector
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

    from penstock.lake.columns import Columns
    from penstock.lake.deletes import DeleteIndex, Deletions
    from penstock.lake.layout import Day
    from penstock.lake.target import Target

_EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of a table."""

    path: str
    rows: int
    bytes: int
    day: Day
    spec_id: int
    deletes: Deletions | None = field(default=None, kw_only=True)
    """What was deleted of it; None: nothing."""


@dataclass(frozen=True, slots=True)
class WrittenFile(LiveFile):
    """A data file that no table has yet, with all that its commit needs to know.

    Plain values, so that it travels from a task to the driver.
    """

    sort_order_id: int
    statistics: Mapping[str, Any]

    @classmethod
    def of(
        cls, path: str, size: int, day: Day, metadata: pq.FileMetaData, target: Target
    ) -> WrittenFile:
        """What the footer of the file says."""
        statistics = _statistics(metadata, target)
        rows = metadata.num_rows
        spec_id = target.far_off_spec_id if isinstance(day, FarOff) else target.spec_id
        if spec_id is None:
            raise CommitConflict(f"{path} has rows of far-off days, and the table no spec for them")
        return cls(path, rows, size, day, spec_id, target.sort_order_id, statistics)


def live_files(
    table: Table, row_filter: str = "", spec_id: int | None = None
) -> Iterator[LiveFile]:
    """The files of the table as it was last loaded that may have rows of the filter.

    Reads the manifests that may name some, or those of one spec. A file of a partition spec that
    nothing here writes is passed over. NotHonoured: one is of a kind that nothing here reads.
    """
    deletes = delete_index_of(table)
    for entry in data_entries(table, row_filter, spec_id):
        file = live_file(table, entry, deletes)
        if file is not None:
            yield file


def data_entries(
    table: Table, row_filter: str = "", spec_id: int | None = None
) -> Iterator[ManifestEntry]:
    """The entries of data files of the table as it was last loaded; of one spec, or of all."""
    # Not by `plan_files`: that stops at equality deletes, and does not know where vectors are.
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    data = [
        each
        for each in manifests
        if each.content is ManifestContent.DATA and spec_id in (None, each.partition_spec_id)
    ]
    planner = ManifestGroupPlanner(table.metadata, table.io, row_filter or ALWAYS_TRUE)
    return chain.from_iterable(planner.plan_manifest_entries(data))


def delete_index_of(table: Table) -> DeleteIndex | None:
    """The deletes of the table as it was last loaded; None where there are none."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    named = [
        (each.manifest_path, each.sequence_number, each.partition_spec_id)
        for each in manifests
        if each.content is ManifestContent.DELETES
    ]
    specs = [spec.model_dump(by_alias=True) for spec in table.metadata.partition_specs]
    whole = global_specs(_with_texts(spec) for spec in specs)
    return delete_index(lambda path: table.io.new_input(path).open(), named, whole)


def _with_texts(spec: dict[str, Any]) -> dict[str, Any]:
    fields = [{**each, "transform": str(each["transform"])} for each in spec["fields"]]
    return {**spec, "fields": fields}


def own_columns(table: Table, names: Iterable[str]) -> dict[str, int]:
    """The numbers of Penstock's columns that the table, as it was last loaded, has or had."""
    schemas = sorted(table.metadata.schemas, key=lambda schema: schema.schema_id)
    history = [_fields(schema) for schema in schemas]
    return own_numbers(names, table.properties, history, _fields(table.schema()))


def _fields(schema: Schema) -> list[dict[str, Any]]:
    return [{"name": field.name, "id": field.field_id} for field in schema.fields]


def deletes_of(table: Table, files: Iterable[LiveFile]) -> dict[str, Deletions | None]:
    """By path: what is deleted of the files in the table as it was last loaded."""
    wanted, index = {file.path: file.deletes for file in files}, delete_index_of(table)
    if index is None:
        return dict.fromkeys(wanted)
    entries = (entry for entry in data_entries(table) if entry.data_file.file_path in wanted)
    found = {entry.data_file.file_path: live_file(table, entry, index) for entry in entries}
    return {path: None if (file := found.get(path)) is None else file.deletes for path in wanted}


def columns_of_table(table: Table) -> Columns:
    """How the files of the table, as it was last loaded, are read."""
    metadata = table.metadata
    schemas = [schema.model_dump(by_alias=True, mode="json") for schema in metadata.schemas]
    promoted = of_properties(table.properties)
    name = table.name()[-1]
    return table_columns(name, promoted, table.properties, schemas, metadata.current_schema_id)


def parts_of(file: DataFile) -> tuple[Any, ...]:
    """The partition of a file."""
    return tuple(file.partition[place] for place in range(len(file.partition)))


def described(file: DataFile) -> dict[str, Any]:
    """A file as its manifest has it, as far as it matters whether it can be read."""
    return {
        "content": int(file.content),
        "file_format": file.file_format.value,
        "key_metadata": file.key_metadata,
    }


def files_of_day(table: Table, day: Day) -> list[LiveFile]:
    """The files of one day, of the rows without a time, or of far-off days, by their paths."""
    some = far_off_files(table) if isinstance(day, FarOff) else _of_time(table, day)
    return sorted((file for file in some if file.day == day), key=lambda file: file.path)


def files_before(table: Table, day: date) -> list[LiveFile]:
    """The files of earlier days, those of far-off days that came earlier, and of no time."""
    # Not by one filter with OR: pyiceberg then compares the day of a file that has none.
    earlier = live_files(table, f"{_time_column(table)} < '{day}T00:00:00+00:00'")
    dated = [file for file in earlier if isinstance(file.day, date) and file.day < day]
    far_off = [
        file
        for file in far_off_files(table)
        if isinstance(file.day, FarOff) and file.day.came < day
    ]
    return [*dated, *far_off, *files_of_day(table, None)]


def far_off_files(table: Table) -> Iterator[LiveFile]:
    """Those of rows of far-off days; reads no manifests but theirs."""
    spec_id = far_off_spec(table)
    return iter(()) if spec_id is None else live_files(table, spec_id=spec_id)


def far_off_spec(table: Table) -> int | None:
    """The partition spec of rows of far-off days: it parts nothing. None: the table has none."""
    found = (each.spec_id for each in table.specs().values() if not each.fields)
    return next(found, None)


def live_file(table: Table, entry: ManifestEntry, deletes: DeleteIndex | None) -> LiveFile | None:
    """A file of a manifest, with what was deleted of it; None where nothing here has parted it."""
    file = entry.data_file
    check_readable(described(file), file.file_path)
    spec_id = file.spec_id
    fields = table.specs()[spec_id].fields
    day: Day = None
    if not fields:
        day = far_off_of(file.file_path)
        if day is None:
            return None
    elif len(fields) == 1 and isinstance(fields[0].transform, DayTransform):
        number = file.partition[0]
        day = None if number is None else _EPOCH + timedelta(days=number)
    else:
        return None
    found = deletes and deletes.of(
        plain_path(file.file_path), entry.sequence_number or 0, spec_id, parts_of(file)
    )
    rows, size = file.record_count, file.file_size_in_bytes
    return LiveFile(file.file_path, rows, size, day, spec_id, deletes=found or None)


def data_file(file: LiveFile) -> DataFile:
    """The file as Iceberg's manifests have it; without statistics where we have none."""
    statistics = file.statistics if isinstance(file, WrittenFile) else {"record_count": file.rows}
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=_partition(file.day),
        file_size_in_bytes=file.bytes,
        sort_order_id=file.sort_order_id if isinstance(file, WrittenFile) else None,
        equality_ids=None,
        key_metadata=None,
        **statistics,
    )
    made.spec_id = file.spec_id
    return made


def _partition(day: Day) -> Record:
    """Invariant: it is true of every row of the file. Whoever reads leaves files out by it."""
    if isinstance(day, FarOff):
        return Record()
    return Record(None if day is None else (day - _EPOCH).days)


def check_written(table: Table, files: Iterable[WrittenFile]) -> None:
    """CommitConflict where the table cannot take the files any more; they are written again."""
    for file in files:
        is_far = isinstance(file.day, FarOff)
        if file.spec_id != (far_off_spec(table) if is_far else table.spec().spec_id):
            raise CommitConflict(f"{file.path} was written for another partition spec")
        if not table.io.new_input(file.path).exists():
            raise CommitConflict(f"{file.path} is gone")


def _of_time(table: Table, day: date | None) -> Iterator[LiveFile]:
    """The files that may have rows of a day, or without a time."""
    column = _time_column(table)
    if day is None:
        return live_files(table, f"{column} IS NULL")
    begin, end = f"{day}T00:00:00+00:00", f"{day + timedelta(days=1)}T00:00:00+00:00"
    return live_files(table, f"{column} >= '{begin}' AND {column} < '{end}'")


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
