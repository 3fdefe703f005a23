"""The lake: a catalog and its tables, each made or brought up to date when it is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import TableProperties
from pyiceberg.table.update import AddPartitionSpecUpdate, AssertDefaultSpecId
from pyiceberg.transforms import DayTransform, IdentityTransform

from penstock.lake.arrow import arrow_schema
from penstock.lake.catalog import open_catalog
from penstock.lake.columns import recorded_as
from penstock.lake.files import far_off_spec, own_columns
from penstock.lake.parquet import leaf_paths
from penstock.lake.promoted import of_properties, parse_all, promoted_properties, with_columns
from penstock.lake.properties import WRITTEN_FORMAT, new_table_properties, outdated
from penstock.lake.schemas import RENAMED, TABLES
from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from penstock.lake.settings import LakeSettings

_ATTEMPTS: Final = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table is like: its columns, the time whose day parts it, and its order."""

    schema: pa.Schema
    time: str = "time"
    sorted_by: tuple[str, ...] = ("service_name", "time")


class Lake:
    """The tables of one warehouse. Safe for threads; a forked process opens its own."""

    def __init__(self, catalog: Catalog, settings: LakeSettings) -> None:
        self._catalog = catalog
        self.settings = settings
        self._promoted = parse_all(settings.promoted)

    @classmethod
    def open(cls, settings: LakeSettings) -> Lake:
        """The lake at the settings' warehouse, made where there is none."""
        return cls(open_catalog(settings), settings)

    def table(self, name: str, shape: Shape | None = None) -> Table:
        """The table as it is now, with every column of `shape`; by default that of `TABLES`.

        A missing table is made. Columns that had another name in 0.1 are renamed, which keeps
        their values. Columns that are new are added, null in the rows that are there; one that
        others renamed is still the same, one that somebody dropped is not added again. Columns
        that the shape does not know stay, and so do the partitions and the order of a
        table that exists. Several processes may do so at once.
        """
        shape = shape or self._usual(name)
        failures = 0
        while True:
            try:
                return self._up_to_date(name, shape)
            except (CommitFailedException, TableAlreadyExistsError):
                failures += 1  # another process did the same; look at what it did
                if failures == _ATTEMPTS:
                    raise

    def existing(self, name: str) -> Table | None:
        """The table as it is, for reading; None where there is none."""
        try:
            return self._catalog.load_table((self.settings.namespace, name))
        except NoSuchTableError:
            return None

    def names(self) -> list[str]:
        """The tables that there are."""
        return sorted(names[-1] for names in self._catalog.list_tables(self.settings.namespace))

    def close(self) -> None:
        """Gives the catalog's connections back."""
        self._catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it."""
        self.close()

    def _up_to_date(self, name: str, shape: Shape) -> Table:
        table = self.existing(name)
        if table is None:
            return self._create(name, shape)
        if table.format_version > WRITTEN_FORMAT:
            return table  # it can be read; whoever writes to it is told so
        self._rename(table, shape)
        if name in TABLES and far_off_spec(table) is None:
            _add_far_off_spec(table)
        known = own_columns(table, shape.schema.names)
        missing = [each for each in shape.schema if _is_new(each, known, table)]
        new, gone = outdated(table.properties, shape.schema.names)
        new |= self._promotion(table.properties) if name in TABLES else {}
        with table.transaction() as transaction:  # commits nothing where nothing is new
            if missing:
                with transaction.update_schema() as update:
                    update.union_by_name(pa.schema(missing))
            now = {f.name: f.field_id for f in transaction.table_metadata.schema().fields}
            known |= {each.name: now[each.name] for each in missing if each.name not in known}
            new |= recorded_as(known)
            if not new.items() <= table.properties.items():
                transaction.set_properties(new)
            if gone:
                transaction.remove_properties(*gone)
        return table

    def _rename(self, table: Table, shape: Shape) -> None:
        """By Iceberg's own rename: the number of the column stays, and so do its old files."""
        names, wanted = set(table.schema().column_names), set(shape.schema.names)
        prefix = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX
        for old, new in RENAMED.items():
            if old not in names or new in names or new not in wanted:
                continue
            with table.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.rename_column(old, new)
                # Iceberg's library refuses a table whose properties speak of no column.
                mode = table.properties.get(f"{prefix}.{old}")
                if mode is not None:
                    transaction.remove_properties(f"{prefix}.{old}")
                    transaction.set_properties({f"{prefix}.{new}": mode})

    def _create(self, name: str, shape: Shape) -> Table:
        """Columns, partitions, order and properties in one commit."""
        location = f"{self.settings.warehouse.rstrip('/')}/{name}"
        identifier = (self.settings.namespace, name)
        transaction = self._catalog.create_table_transaction(
            identifier,
            shape.schema,
            location,
            properties=new_table_properties(
                shape.schema.names, [shape.time, *shape.sorted_by], self.settings.snapshots_kept
            )
            | (self._promotion({}) if name in TABLES else {}),
        )
        with transaction.update_spec() as spec:
            spec.add_field(shape.time, DayTransform(), f"{shape.time}_day")
        with transaction.update_sort_order() as order:
            for column in shape.sorted_by:
                order.asc(column, IdentityTransform())
        schema = transaction.table_metadata.schema()
        mapping = {TableProperties.DEFAULT_NAME_MAPPING: schema.name_mapping.model_dump_json()}
        numbers = recorded_as({field.name: field.field_id for field in schema.fields})
        transaction.set_properties(mapping | numbers)
        transaction.commit_transaction()
        table = self._catalog.load_table(identifier)
        if name in TABLES and far_off_spec(table) is None:
            _add_far_off_spec(table)
        return table

    def _usual(self, name: str) -> Shape:
        if name not in TABLES:
            raise InvalidArgument(f"the lake has no table {name!r}; it has {', '.join(TABLES)}")
        return Shape(with_columns(TABLES[name], self._promoted))

    def _promotion(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The properties of a table that has the promoted attributes beside those it had."""
        if not self._promoted:
            return {}
        every = parse_all(map(str, {*of_properties(properties), *self._promoted}))
        return promoted_properties(sorted(every))


def _add_far_off_spec(table: Table) -> None:
    """A partition spec that parts nothing, beside the one by days, which stays the default.

    Most tables have it: pyiceberg makes one without partitions, and changes it.
    """
    number = max(table.specs()) + 1
    fields = {"default-spec-id": table.metadata.default_spec_id}
    default = AssertDefaultSpecId.model_validate(fields)
    with table.transaction() as transaction:
        update = AddPartitionSpecUpdate(spec=PartitionSpec(spec_id=number))
        transaction._apply((update,), (default,))  # noqa: SLF001 - there is no other way


def _is_new(column: pa.Field, known: Mapping[str, int], table: Table) -> bool:
    """Whether the table never had the column, or never something that is inside of it."""
    if column.name not in known:
        return True
    schemas = [arrow_schema(schema.model_dump_json()) for schema in table.metadata.schemas]
    had = {path for schema in schemas for path in leaf_paths(schema)}
    is_there = column.name in table.schema().column_names
    return is_there and not had.issuperset(leaf_paths(pa.schema([column])))
