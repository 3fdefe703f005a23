"""The tables and views that a statement names, made in DuckDB from what the tiers have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.lake.dialects import DUCKDB
from penstock.lake.glance import glance
from penstock.lake.schemas import TABLES
from penstock.lake.views import view_queries
from penstock.query.repeats import without_repeats
from penstock.query.statements import tables_in
from penstock.query.tiers import look

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from penstock.lake.glance import ColdFile
    from penstock.lake.settings import LakeSettings
    from penstock.query.tiers import TableTiers, Tier

ROLLUPS: Final = ("service_red_1m", "service_edges_1h", "traces")
"""Tables that the lake alone has."""
_VIEWS: Final = {table: view_queries(DUCKDB, [table]) for table in TABLES}


class Relations:
    """Makes only what is asked for: looking at a table costs more than most queries."""

    def __init__(
        self,
        connection: DuckDBPyConnection,
        data_dir: Path,
        lake: LakeSettings,
        tiers: Collection[Tier],
    ) -> None:
        self._connection = connection
        self._data_dir = data_dir
        self._lake = lake
        self._tiers = tiers
        self.tables: dict[str, TableTiers] = {}
        self.paths: list[str] = []
        """The files that they read."""
        self.warnings: list[str] = []

    def make(self, sql: str) -> None:
        """What the statement may be speaking of."""
        for table, views in _VIEWS.items():
            named = tables_in(sql, {table, *views})
            if named:
                self._make_table(table)
            for view in sorted(named - {table}):
                self._connection.execute(f"CREATE VIEW {view} AS {views[view]}")
        for table in tables_in(sql, ROLLUPS):
            self._make_rollup(table)

    def _make_table(self, table: str) -> None:
        found = look(self._data_dir, self._lake, table, self._tiers, self.warnings.append)
        self.tables[table] = found
        self._connection.register(f"fresh_{table}", without_repeats(table, found))
        columns = ", ".join(f'"{name}"' for name in TABLES[table].names)
        sources = [f"fresh_{table}"]
        if found.cold.files:
            sources.insert(0, self._parquet(found.cold.files))
        parts = [f"SELECT {columns} FROM {source}" for source in sources]  # noqa: S608 - our own
        self._connection.execute(f"CREATE VIEW {table} AS {' UNION ALL '.join(parts)}")

    def _make_rollup(self, table: str) -> None:
        """One that was never made is left out: the statement may mean something else."""
        files = glance(self._lake, table).files
        if files:
            self._connection.execute(f"CREATE VIEW {table} AS FROM {self._parquet(files)}")

    def _parquet(self, files: Sequence[ColdFile]) -> str:
        paths = [file.path for file in files]
        self.paths += paths
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
        return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
