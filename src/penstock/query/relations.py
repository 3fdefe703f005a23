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
from penstock.query.cold import cold_sources, divided
from penstock.query.columns import needs_large, own_columns_in
from penstock.query.conditions import wanted
from penstock.query.dialect import macros_in
from penstock.query.pruning import chosen, conditions_on, pruned
from penstock.query.quoting import identifier
from penstock.tiers.cut import Tier
from penstock.tiers.doubles import DOUBLES
from penstock.tiers.findings import Findings
from penstock.tiers.repeats import without_repeats
from penstock.tiers.table import Asked, table_tiers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from penstock.lake.columns import Columns
    from penstock.lake.glance import ColdFile, Glance
    from penstock.lake.settings import LakeSettings
    from penstock.query.conditions import Wanted
    from penstock.query.statements import Statement
    from penstock.tiers.table import TableTiers

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


@dataclass(frozen=True, slots=True)
class _Table:
    """What was found of a table, for one caller."""

    name: str
    views: Mapping[str, str]
    """The queries of its views that are named."""
    seen: Glance
    files: Sequence[ColdFile]
    doubles: Mapping[str, Collection[int]]
    fresh: pa.Table | None


class Relations:
    """Looks only at what is asked for: looking at a table costs more than most queries.

    The tables are made in an engine that reaches no more than what the caller may see, and that
    alone runs the caller's statement.
    """

    def __init__(self, scope: Scope, statement: Statement) -> None:
        self._scope = scope
        self.statement = statement
        self._found: list[_Table] = []
        self._rollups: dict[str, Glance] = {}
        self.tables: dict[str, TableTiers] = {}
        self.files: dict[str, ColdFile] = {}
        """Those that they read, by their paths."""
        self.said = Findings()

    def look(self, asking: DuckDBPyConnection, check: Callable[[], None]) -> None:
        """At what the statement reads. `asking` reckons its constants; `check` may end it."""
        for table, views in _VIEWS.items():
            named = self.statement.tables & {table, *views}
            if named:
                chosen_views = {view: views[view] for view in sorted(named - {table})}
                limits = wanted(asking, self.statement.tree, conditions_on(table))
                self._found.append(self._look_at(check, table, chosen_views, limits))
        for table in sorted(self.statement.tables.intersection(ROLLUPS)):
            self._rollups[table] = glance(self._scope.lake, table)
            self._readable(self._rollups[table].files)

    @property
    def paths(self) -> frozenset[str] | None:
        """The files that the engine has to reach; None: the caller may see all of the lake."""
        if self._scope.namespaces is None:
            return None
        whole, _ = divided(list(self.files.values()), self._scope.namespaces)
        return frozenset(file.path for file in whole)

    def make(self, connection: DuckDBPyConnection) -> None:
        """The tables and views that the statement reads, and the functions that it calls."""
        for macro in macros_in(self.statement.tree):
            connection.execute(macro)
        for found in self._found:
            self._make_table(connection, found)
        for table, seen in self._rollups.items():
            self._make_rollup(connection, table, seen)

    def _look_at(
        self, check: Callable[[], None], table: str, views: Mapping[str, str], limits: Wanted
    ) -> _Table:
        tree, scope = self.statement.tree, self._scope

        def is_slim(seen: Glance) -> bool:
            return not needs_large(tree, seen, table, views)

        asked = Asked(table, scope.tiers, scope.namespaces, is_slim, limits.trace_ids)
        found = table_tiers(scope.data_dir, scope.lake, asked, self.said)
        self.tables[table] = found
        self._check_certain(table, found.cold, views)
        lake = replace(found.cold, files=self._without_left_out(found.cold.files))
        files = self._readable(pruned(lake.files, limits))
        found.cold = replace(found.cold, files=tuple(files))
        pieces = [piece for tier in (Tier.WARM, Tier.HOT) for piece in found.fresh.get(tier, ())]
        fresh = chosen(without_repeats(pieces, files, check), limits)
        if fresh is not None and not is_slim(found.cold):
            fresh = fill(fresh, found.cold.promoted)
        doubles = DOUBLES.rows(scope.lake, lake, files, check) if table == "spans" else {}
        return _Table(table, views, found.cold, files, doubles, fresh)

    def _make_table(self, connection: DuckDBPyConnection, found: _Table) -> None:
        table, given = found.name, found.seen.columns
        ours = with_columns(TABLES[table], found.seen.promoted)
        also = {} if given is None else given.also
        schema = pa.schema([*ours, *_others(ours, given)])
        in_files = None if given is None else given.schema.names
        shape = f"columns of {table}"  # no name that a statement could have
        connection.register(shape, schema.empty_table())
        added = len(schema) > len(TABLES[table])
        sources = [_selected(schema, identifier(shape))]
        for source in self._cold(connection, table, found.files, found.doubles):
            # Files from before a column was added do not have it.
            whole = (
                f"(FROM {identifier(shape)} UNION ALL BY NAME FROM {source})" if added else source
            )
            sources.append(_selected(schema, whole, in_files, also))
        if found.fresh is not None:
            name = f"fresh rows of {table}"
            connection.register(name, found.fresh)
            sources.append(_selected(schema, identifier(name), found.fresh.column_names, also))
        _create(connection, table, " UNION ALL ".join(sources))
        for view, query in found.views.items():
            _create(connection, view, query)

    def _check_certain(self, table: str, seen: Glance, views: Mapping[str, str]) -> None:
        """NotHonoured where fields of a column that is asked for cannot be told apart."""
        unsure = frozenset() if seen.columns is None else seen.columns.unsure
        asked = unsure & own_columns_in(self.statement.tree, seen, table, views)
        if seen.files and asked:
            raise NotHonoured(
                f"fields of the column {min(asked)} of the table {table} were renamed, and the"
                " schemas that say which is which are forgotten: give them their names again"
            )

    def _make_rollup(self, connection: DuckDBPyConnection, table: str, seen: Glance) -> None:
        """One that was never made is left out: the statement says so when it is run."""
        if seen.columns is not None and self._without_left_out(seen.files):
            shape = f"columns of {table}"  # of a caller that has no file of it too
            connection.register(shape, seen.columns.schema.empty_table())
            sources = self._cold(connection, table, self._readable(seen.files))
            parts = [f"FROM {source}" for source in (identifier(shape), *sources)]
            _create(connection, table, " UNION ALL BY NAME ".join(parts))

    def _readable(self, files: Sequence[ColdFile]) -> list[ColdFile]:
        """Those that may have rows of the caller's; no other is opened for its question."""
        left = self._without_left_out(files)
        whole, shared = divided(left, self._scope.namespaces)
        mine = {*whole, *shared}
        seen = [file for file in left if file in mine]
        self.files |= {file.path: file for file in seen}
        return seen

    def _without_left_out(self, files: Sequence[ColdFile]) -> tuple[ColdFile, ...]:
        return tuple(file for file in files if file.path not in self._scope.left_out)

    def _cold(
        self,
        connection: DuckDBPyConnection,
        table: str,
        files: Sequence[ColdFile],
        doubles: Mapping[str, Collection[int]] = MappingProxyType({}),
    ) -> list[str]:
        return cold_sources(connection, table, files, self._scope.namespaces, doubles)


def _create(connection: DuckDBPyConnection, name: str, query: str) -> None:
    connection.execute(f"CREATE TEMP VIEW {identifier(name)} AS {query}")


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
