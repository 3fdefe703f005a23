"""What a task needs to know of a table to write its files, without a catalog."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.table import TableProperties
from pyiceberg.transforms import DayTransform

from penstock.lake.arrow import arrow_schema
from penstock.lake.columns import check_known, dropped_columns, number_of
from penstock.lake.files import columns_of_table, far_off_spec
from penstock.lake.promoted import of_properties
from penstock.lake.schemas import USUAL
from penstock.model.errors import NotHonoured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from penstock.lake.promoted import Promoted


@dataclass(frozen=True, slots=True)
class Target:
    """A table as files are written for it. Made by the driver, pickled to its tasks."""

    location: str
    schema_json: str
    """The columns by Penstock's own names: a file is read by their numbers."""
    time_column: str
    """The column whose day decides which file a row goes to."""
    sorted_by: tuple[str, ...]
    spec_id: int
    far_off_spec_id: int | None
    """That of files with rows of far-off days; None: it has none."""
    sort_order_id: int
    metrics: tuple[tuple[str, str], ...]
    """Properties that say of which columns the bounds are kept."""
    promoted: tuple[Promoted, ...]
    """Attributes with columns of their own."""
    dropped: frozenset[str]
    """Columns of Penstock's that somebody has dropped: they are not written any more."""
    access: tuple[tuple[str, str], ...] = field(repr=False)
    """Properties with which files are reached, credentials among them."""

    @classmethod
    def of(cls, table: Table) -> Target:
        """The table as it was last loaded."""
        columns = columns_of_table(table)
        names = {number_of(each): each.name for each in columns.schema}
        document = json.loads(table.schema().model_dump_json())
        check_known(columns, document["fields"], table.name()[-1])
        for each in document["fields"]:
            each["name"] = names[each["id"]]
        return cls(
            location=table.location(),
            schema_json=json.dumps(document),
            time_column=names[_time_number(table)],
            sorted_by=tuple(names[each.source_id] for each in table.sort_order().fields),
            spec_id=table.spec().spec_id,
            far_off_spec_id=far_off_spec(table),
            sort_order_id=table.sort_order().order_id,
            metrics=_metrics(table, columns.also),
            promoted=of_properties(table.properties),
            dropped=dropped_columns(columns),
            access=_sorted(table.io.properties),
        )

    @property
    def columns(self) -> pa.Schema:
        """The table's columns, with their numbers."""
        return arrow_schema(self.schema_json)

    def fields(self, names: Iterable[str]) -> pa.Schema:
        """Columns to be read; one that was dropped is read as null."""
        columns = self.columns
        return pa.schema(
            [columns.field(name) if name in columns.names else USUAL[name] for name in names]
        )

    @property
    def io(self) -> FileIO:
        """Access to the files, made once in each process."""
        return _io(self.access, self.location)


@lru_cache(maxsize=16)
def _io(access: tuple[tuple[str, str], ...], location: str) -> FileIO:
    return load_file_io(dict(access), location)


def _time_number(table: Table) -> int:
    fields = table.spec().fields
    if len(fields) != 1 or not isinstance(fields[0].transform, DayTransform):
        raise NotHonoured(
            f"the table {table.name()[-1]} is not partitioned by day alone any more,"
            " and Penstock writes no other partitions"
        )
    return fields[0].source_id


def _metrics(table: Table, also: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Also of columns that have another name in the table than here."""
    prefix = TableProperties.DEFAULT_WRITE_METRICS_MODE.rpartition(".")[0]
    column = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX
    found = {k: v for k, v in table.properties.items() if k.startswith(prefix)}
    for theirs, ours in also.items():
        if f"{column}.{theirs}" in found:
            found[f"{column}.{ours}"] = found[f"{column}.{theirs}"]
    return _sorted(found)


def _sorted(properties: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in properties.items()))
