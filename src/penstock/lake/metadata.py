"""Iceberg's metadata as they lie there: where a table's are, and the records of its manifests.

The one way by which Penstock looks at a table without changing it. The catalog is a SQLite file and
the metadata are JSON and Avro, so nothing more is needed to see them; pyiceberg, which takes longer
to import than most queries take, is asked only where another catalog has the table, and then only
for where its metadata are and how its files are opened.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.lake.deletes import plain_path
from penstock.lake.manifests import records
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.lake.deletes import Opener
    from penstock.lake.settings import LakeSettings

CATALOG: Final = "catalog.db"
LOCK_WAIT_S: Final = 5.0
"""How long a catalog may be locked before it counts as unreadable."""


def local_path(location: str) -> Path:
    """Where a file is that a manifest names."""
    return Path(plain_path(location))


def open_local(location: str) -> Any:
    """A file on this machine."""
    return local_path(location).open("rb")


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """The metadata of a table, as one commit left them."""

    location: str
    document: Mapping[str, Any]
    opener: Opener = open_local
    """Opens what the metadata name."""

    @classmethod
    def read(cls, location: str, opener: Opener = open_local) -> TableMetadata:
        """FileNotFoundError where it is gone, ValueError where it is no JSON."""
        with opener(location) as stream:
            return cls(location, json.loads(stream.read()), opener)

    @property
    def identity(self) -> str:
        """Of the table: one that is made anew in the same place is another."""
        return str(self.document["table-uuid"])

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's."""
        found: Mapping[str, str] = self.document.get("properties", {})
        return found

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        """All that it has, the current one among them."""
        found: list[dict[str, Any]] = self.document.get("snapshots", [])
        return found

    @property
    def current_snapshot_id(self) -> int | None:
        """None where nothing was ever committed."""
        found: int | None = self.document.get("current-snapshot-id")
        return None if found == -1 else found

    def current_snapshot(self) -> dict[str, Any] | None:
        """KeyError where it should be there and is not."""
        current = self.current_snapshot_id
        if current is None:
            return None
        for snapshot in self.snapshots:
            if snapshot["snapshot-id"] == current:
                return snapshot
        raise KeyError(f"the current snapshot {current} is not among the snapshots")

    def records(self, location: str) -> Iterator[dict[str, Any]]:
        """Of a manifest, or of a list of them."""
        with self.opener(location) as stream:
            yield from records(stream)


def find_table(settings: LakeSettings, table: str) -> TableMetadata | None:
    """The table as its catalog has it now; None where the catalog does not have it.

    FileNotFoundError: its metadata were tidied up since the catalog was read. Damaged: the catalog
    cannot be read.
    """
    if settings.catalog:
        return _of_catalog(settings, table)
    path = Path(settings.warehouse) / CATALOG
    if not path.exists():
        return None
    with SqliteCatalog.reading(path) as catalog:
        location = catalog.location(settings.namespace, table, settings.catalog_name)
    return None if location is None else TableMetadata.read(location)


def _of_catalog(settings: LakeSettings, table: str) -> TableMetadata | None:
    from pyiceberg.exceptions import NoSuchTableError

    from penstock.lake.catalog import open_catalog

    with contextlib.closing(open_catalog(settings)) as catalog:
        try:
            loaded = catalog.load_table((settings.namespace, table))
        except NoSuchTableError:
            return None
    io = loaded.io
    # A catalog may answer with metadata that no file has yet: they are taken from the answer.
    document = json.loads(loaded.metadata.model_dump_json(by_alias=True))
    return TableMetadata(
        loaded.metadata_location, document, lambda location: io.new_input(location).open()
    )


class SqliteCatalog:
    """The catalog beside the tables, for reading; Damaged where that fails."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    @contextlib.contextmanager
    def reading(cls, path: Path) -> Iterator[SqliteCatalog]:
        """For the length of a block; makes and changes nothing."""
        url = f"{path.absolute().as_uri()}?mode=ro"
        try:
            with contextlib.closing(sqlite3.connect(url, LOCK_WAIT_S, uri=True)) as connection:
                yield cls(connection, path)
        except sqlite3.Error as error:
            raise Damaged(f"{path} cannot be read: {error}") from error

    def location(self, namespace: str, table: str, catalog: str | None = None) -> str | None:
        """Where the metadata of a table are; `catalog` is the one of several in the file."""
        query = (
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? "
            "AND table_name = ? AND catalog_name = coalesce(?, catalog_name)"
        )
        row = self._connection.execute(query, (namespace, table, catalog)).fetchone()
        return None if row is None else str(row[0])

    def tables(self) -> list[str]:
        """As `namespace.name`, after a look at every page of the file."""
        (state,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise Damaged(f"{self._path} cannot be read: {' '.join(str(state).split())}")
        query = "SELECT table_namespace, table_name FROM iceberg_tables ORDER BY 1, 2"
        return [f"{namespace}.{name}" for namespace, name in self._connection.execute(query)]
