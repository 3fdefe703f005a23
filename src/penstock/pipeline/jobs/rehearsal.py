"""What an expiry would take, without taking it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table import Table

from penstock.lake.durable import DurableFileIO

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Self

    from pyiceberg.io import InputFile, OutputFile


def old_snapshots(table: Table, before: datetime) -> int:
    """How many `expire_snapshots` would have the table forget."""
    kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
    limit_ms = before.timestamp() * 1000
    old = (s for s in table.metadata.snapshots if s.timestamp_ms < limit_ms)
    return sum(snapshot.snapshot_id not in kept for snapshot in old)


def untouched(table: Table) -> Table:
    """The same table, of which no file can be deleted: asked to, it does nothing."""
    return _Untouched(
        table.name(), table.metadata, table.metadata_location, table.io, table.catalog
    ).refresh()


class _Untouched(Table):
    def refresh(self) -> Self:
        """Loads it again, and keeps its files safe."""
        super().refresh()
        self.io = _Kept(self.io.properties)
        return self


class _Kept(DurableFileIO):
    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Deletes nothing."""
