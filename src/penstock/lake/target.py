"""What a task needs to know of a table to write its files, without a catalog."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from pyiceberg.io import load_file_io
from pyiceberg.table import TableProperties
from pyiceberg.transforms import DayTransform

from penstock.lake.arrow import arrow_schema
from penstock.lake.promoted import of_properties
from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from penstock.lake.promoted import Promoted


@dataclass(frozen=True, slots=True)
class Target:
    """A table as files are written for it. Made by the driver, pickled to its tasks."""

    location: str
    schema_json: str
    time_column: str
    """The column whose day decides which file a row goes to."""
    sorted_by: tuple[str, ...]
    spec_id: int
    sort_order_id: int
    metrics: tuple[tuple[str, str], ...]
    """Properties that say of which columns the bounds are kept."""
    promoted: tuple[Promoted, ...]
    """Attributes with columns of their own."""
    access: tuple[tuple[str, str], ...] = field(repr=False)
    """Properties with which files are reached, credentials among them."""

    @classmethod
    def of(cls, table: Table) -> Target:
        """The table as it was last loaded."""
        schema = table.schema()
        prefix = TableProperties.DEFAULT_WRITE_METRICS_MODE.rpartition(".")[0]
        return cls(
            location=table.location(),
            schema_json=schema.model_dump_json(),
            time_column=_time_column(table),
            sorted_by=tuple(
                schema.find_column_name(field.source_id) or ""
                for field in table.sort_order().fields
            ),
            spec_id=table.spec().spec_id,
            sort_order_id=table.sort_order().order_id,
            metrics=_sorted({k: v for k, v in table.properties.items() if k.startswith(prefix)}),
            promoted=of_properties(table.properties),
            access=_sorted(table.io.properties),
        )

    @property
    def columns(self) -> pa.Schema:
        """The table's columns, with their numbers."""
        return arrow_schema(self.schema_json)

    @property
    def io(self) -> FileIO:
        """Access to the files, made once in each process."""
        return _io(self.access, self.location)


@lru_cache(maxsize=16)
def _io(access: tuple[tuple[str, str], ...], location: str) -> FileIO:
    return load_file_io(dict(access), location)


def _time_column(table: Table) -> str:
    fields = table.spec().fields
    if len(fields) != 1 or not isinstance(fields[0].transform, DayTransform):
        raise InvalidArgument(f"the table {table.name()[-1]} is not partitioned by day alone")
    return table.schema().find_column_name(fields[0].source_id) or ""


def _sorted(properties: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in properties.items()))
