"""What a table has right now, read in milliseconds: its files and its positions.

The catalog is a SQLite file and Iceberg's metadata are JSON and Avro, so nothing more is needed to
see them; pyiceberg takes longer to import than most queries take. Tables of other catalogs are
asked for through pyiceberg.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from penstock.lake.positions import decode_positions
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import date

    from penstock.lake.positions import Positions
    from penstock.lake.settings import LakeSettings

CATALOG: Final = "catalog.db"
_DELETED: Final = 2
_MICROSECONDS: Final = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class ColdFile:
    """A data file of a table."""

    path: str
    rows: int
    bytes: int
    day: date | None
    times_us: tuple[int, int] | None
    """The first and the last `time` in it; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Glance:
    """A table at one moment."""

    files: tuple[ColdFile, ...]
    positions: Positions
    """What of the topics is in it."""


NOTHING: Final = Glance((), {})


def glance(settings: LakeSettings, table: str) -> Glance:
    """The table as the last commit left it; nothing where it does not exist.

    Damaged: its metadata cannot be read. Nothing is made or changed.
    """
    if settings.catalog:
        return _through_pyiceberg(settings, table)
    try:
        metadata = _metadata(settings, table)
        return Glance(tuple(_files(metadata)), decode_positions(metadata.get("properties", {})))
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise Damaged(f"the metadata of the table {table} cannot be read: {error}") from error


def glance_at_positions(settings: LakeSettings, table: str) -> Positions:
    """The positions alone, at a fraction of the cost; none where they are not to be had so."""
    if settings.catalog:
        return {}
    try:
        return decode_positions(_metadata(settings, table).get("properties", {}))
    except (OSError, ValueError) as error:
        raise Damaged(f"the metadata of the table {table} cannot be read: {error}") from error


def _metadata(settings: LakeSettings, table: str) -> dict[str, Any]:
    location = _metadata_location(settings, table)
    found: dict[str, Any] = {} if location is None else json.loads(_path(location).read_bytes())
    return found


def _metadata_location(settings: LakeSettings, table: str) -> str | None:
    path = Path(settings.warehouse) / CATALOG
    if not path.exists():
        return None
    query = (
        "SELECT metadata_location FROM iceberg_tables "
        "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
    )
    wanted = (settings.catalog_name, settings.namespace, table)
    try:
        with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True) as catalog:
            row = catalog.execute(query, wanted).fetchone()
        catalog.close()
    except sqlite3.Error as error:
        raise Damaged(f"{path} cannot be read: {error}") from error
    return None if row is None else str(row[0])


def _files(metadata: Mapping[str, Any]) -> Iterator[ColdFile]:
    current = metadata.get("current-snapshot-id")
    if current in (None, -1):
        return
    snapshot = next(s for s in metadata["snapshots"] if s["snapshot-id"] == current)
    time_id = _time_id(metadata)
    for manifest in _records(snapshot["manifest-list"]):
        for entry in _records(manifest["manifest_path"]):
            if entry["status"] != _DELETED:
                yield _file(entry["data_file"], time_id)


def _file(fields: Mapping[str, Any], time_id: int) -> ColdFile:
    bounds = [
        next((each["value"] for each in fields[name] or () if each["key"] == time_id), None)
        for name in ("lower_bounds", "upper_bounds")
    ]
    first, last = bounds
    times = None
    if first is not None and last is not None:
        times = (_MICROSECONDS.unpack(first)[0], _MICROSECONDS.unpack(last)[0])
    day = next(iter(fields["partition"].values()), None)
    path = str(_path(fields["file_path"]))
    return ColdFile(path, fields["record_count"], fields["file_size_in_bytes"], day, times)


def _time_id(metadata: Mapping[str, Any]) -> int:
    current = metadata["current-schema-id"]
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == current)
    return int(next(field["id"] for field in schema["fields"] if field["name"] == "time"))


def _records(location: str) -> Iterator[dict[str, Any]]:
    import fastavro

    with _path(location).open("rb") as file:
        yield from fastavro.reader(file)  # type: ignore[misc]  # records of our own tables


def _path(location: str) -> Path:
    parts = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" else Path(location)


def _through_pyiceberg(settings: LakeSettings, table: str) -> Glance:
    from pyiceberg.exceptions import NoSuchTableError

    from penstock.lake.catalog import open_catalog
    from penstock.lake.files import live_files

    catalog = open_catalog(settings)
    try:
        loaded = catalog.load_table((settings.namespace, table))
    except NoSuchTableError:
        return NOTHING
    files = [ColdFile(f.path, f.rows, f.bytes, f.day, None) for f in live_files(loaded)]
    return Glance(tuple(files), decode_positions(loaded.properties))
