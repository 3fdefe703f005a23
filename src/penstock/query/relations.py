"""The tables and views that a statement names, made in DuckDB from what the tiers have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.lake.dialects import DUCKDB
from penstock.lake.glance import glance
from penstock.lake.promoted import fill, with_columns
from penstock.lake.schemas import TABLES
from penstock.lake.views import view_queries
from penstock.model.errors import NotHonoured
from penstock.query.cold import cold_sources
from penstock.query.columns import needs_large, own_columns_in
from penstock.query.conditions import wanted
from penstock.query.dialect import macros_in
from penstock.query.doubles import DOUBLES
from penstock.query.findings import Findings
from penstock.query.pruning import chosen, conditions_on, pruned
from penstock.query.quoting import identifier
from penstock.query.repeats import without_repeats
from penstock.query.tiers import Asked, Tier, look

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from penstock.lake.columns import Columns
    from penstock.lake.glance import ColdFile, Glance
    from penstock.lake.settings import LakeSettings
    from penstock.query.statements import Statement
    from penstock.query.tiers import TableTiers

ROLLUPS: Final = ("service_red_1m", "service_edges_1h", "traces")
"""Tables that the lake alone has."""
_VIEWS: Final = {table: view_queries(DUCKDB, [table]) for table in TABLES}
KNOWN: Final = frozenset(
    {*TABLES, *ROLLUPS, *(view for views in _VIEWS.values() for view in views)}
)
"""Everything that can be asked for."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a query looks, and what it may see."""

    data_dir: Path
    lake: LakeSettings
    tiers: Collection[Tier]
    namespaces: frozenset[str] | None
    left_out: frozenset[str] = frozenset()
    """Files of the lake that cannot be read."""


class Relations:
    """Makes only what is asked for: looking at a table costs more than most queries."""

    def __init__(self, connection: DuckDBPyConnection, scope: Scope, statement: Statement) -> None:
        self._connection = connection
        self._scope = scope
        self._statement = statement
        self.tables: dict[str, TableTiers] = {}
        self.files: dict[str, ColdFile] = {}
        """Those that they read, by their paths."""
        self.said = Findings()

    def make(self) -> None:
        """What the statement reads, and the functions that it calls."""
        for macro in macros_in(self._statement.tree):
            self._connection.execute(macro)
        for table, views in _VIEWS.items():
            named = self._statement.tables & {table, *views}
            if named:
                self._make_table(table, {view: views[view] for view in sorted(named - {table})})
        for table in sorted(self._statement.tables.intersection(ROLLUPS)):
            self._make_rollup(table)

    def _make_table(self, table: str, views: Mapping[str, str]) -> None:
        tree, scope = self._statement.tree, self._scope
        limits = wanted(self._connection, tree, conditions_on(table))

        def is_slim(seen: Glance) -> bool:
            return not needs_large(tree, seen, table, views)

        asked = Asked(table, scope.tiers, scope.namespaces, is_slim, limits.trace_ids)
        found = look(scope.data_dir, scope.lake, asked, self.said)
        self.tables[table] = found
        self._check_certain(table, found.cold, views)
        lake = replace(found.cold, files=self._without_left_out(found.cold.files))
        files = self._readable(pruned(lake.files, limits))
        found.cold = replace(found.cold, files=tuple(files))
        pieces = [piece for tier in (Tier.WARM, Tier.HOT) for piece in found.fresh.get(tier, ())]
        fresh = chosen(without_repeats(self._connection, pieces, files), limits)
        promoted = found.cold.promoted
        ours, given = with_columns(TABLES[table], promoted), found.cold.columns
        also = {} if given is None else given.also
        schema = pa.schema([*ours, *_others(ours, given)])
        in_files = None if given is None else given.schema.names
        shape = f"columns of {table}"  # no name that a statement could have
        self._connection.register(shape, schema.empty_table())
        added = len(schema) > len(TABLES[table])
        sources = [_selected(schema, identifier(shape))]
        doubles = {}
        if table == "spans":
            doubles = DOUBLES.rows(self._connection, scope.lake, lake, files)
        for source in self._cold(table, files, doubles):
            # Files from before a column was added do not have it.
            whole = (
                f"(FROM {identifier(shape)} UNION ALL BY NAME FROM {source})" if added else source
            )
            sources.append(_selected(schema, whole, in_files, also))
        if fresh is not None:
            fresh = fresh if is_slim(found.cold) else fill(fresh, promoted)
            name = f"fresh rows of {table}"
            self._connection.register(name, fresh)
            sources.append(_selected(schema, identifier(name), fresh.column_names, also))
        self._create(table, " UNION ALL ".join(sources))
        for view, query in views.items():
            self._create(view, query)

    def _check_certain(self, table: str, seen: Glance, views: Mapping[str, str]) -> None:
        """NotHonoured where fields of a column that is asked for cannot be told apart."""
        unsure = frozenset() if seen.columns is None else seen.columns.unsure
        asked = unsure & own_columns_in(self._statement.tree, seen, table, views)
        if seen.files and asked:
            raise NotHonoured(
                f"fields of the column {min(asked)} of the table {table} were renamed, and the"
                " schemas that say which is which are forgotten: give them their names again"
            )

    def _make_rollup(self, table: str) -> None:
        """One that was never made is left out: the statement says so when it is run."""
        files = self._readable(glance(self._scope.lake, table).files)
        if files:
            parts = [f"FROM {source}" for source in self._cold(table, files)]
            self._create(table, " UNION ALL BY NAME ".join(parts))

    def _create(self, name: str, query: str) -> None:
        self._connection.execute(f"CREATE TEMP VIEW {identifier(name)} AS {query}")

    def _readable(self, files: Sequence[ColdFile]) -> list[ColdFile]:
        left = self._without_left_out(files)
        self.files |= {file.path: file for file in left}
        return list(left)

    def _without_left_out(self, files: Sequence[ColdFile]) -> tuple[ColdFile, ...]:
        return tuple(file for file in files if file.path not in self._scope.left_out)

    def _cold(
        self,
        table: str,
        files: Sequence[ColdFile],
        doubles: Mapping[str, Collection[int]] = MappingProxyType({}),
    ) -> list[str]:
        namespaces = self._scope.namespaces
        return cold_sources(self._connection, table, files, namespaces, doubles)


def _others(ours: pa.Schema, given: Columns | None) -> list[pa.Field]:
    """Columns that other engines added, and ours by the names that others gave them."""
    if given is None:
        return []
    taken = {name.lower() for name in ours.names}  # a new one of ours hides theirs of its name
    added = [field for field in given.schema if field.name.lower() not in taken]
    renamed = [ours.field(own).with_name(name) for name, own in given.also.items()]
    return [field.remove_metadata() for field in (*added, *renamed)]


def _selected(
    schema: pa.Schema,
    source: str,
    present: Collection[str] | None = None,
    also: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """All columns, null where the source has none; `also` has other names of some."""
    columns = ", ".join(
        f"{identifier(also.get(name, name))} AS {identifier(name)}"
        if present is None or also.get(name, name) in present
        else f"NULL AS {identifier(name)}"
        for name in schema.names
    )
    return f"SELECT {columns} FROM {source}"  # noqa: S608 - our own names
