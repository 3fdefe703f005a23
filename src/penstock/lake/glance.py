"""What a table has right now, read in milliseconds: its files and its positions.

The catalog is a SQLite file and Iceberg's metadata are JSON and Avro, so nothing more is needed to
see them; pyiceberg takes longer to import than most queries take. Tables of other catalogs are
asked for through pyiceberg.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import struct
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from penstock.lake.layout import data_folder
from penstock.lake.positions import decode_epochs, decode_positions
from penstock.lake.promoted import of_properties
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import date

    from penstock.lake.promoted import Promoted
    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import Positions

CATALOG: Final = "catalog.db"
MANIFESTS_KEPT: Final = 256
LOCK_WAIT_S: Final = 5.0
"""How long a catalog may be locked before it counts as unreadable."""
_LOOKS: Final = 5
_DELETED: Final = 2
_CUT_BYTES: Final = 16
"""Bounds of texts are cut there."""
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
    namespace: str | None = None
    """Of all its rows; None where they may have several."""
    sequence: int = 0
    """Of the commit that brought it: later ones have higher numbers."""


@dataclass(frozen=True, slots=True)
class Glance:
    """A table at one moment."""

    files: tuple[ColdFile, ...]
    positions: Positions
    """What of the topics is in it."""
    promoted: tuple[Promoted, ...] = ()
    """Attributes with columns of their own."""
    claims: frozenset[str] = frozenset()
    """The sources that have a writer."""
    identity: str = ""
    """Of the table: one that is made anew in the same place is another. Empty: there is none."""

    @property
    def is_there(self) -> bool:
        """Whether the table exists."""
        return bool(self.identity)


NOTHING: Final = Glance((), {})


def glance(settings: LakeSettings, table: str) -> Glance:
    """The table as the last commit left it; nothing where it never existed.

    Damaged: its metadata cannot be read, or its files are there and the catalog does not have it.
    Nothing is made or changed.
    """
    if settings.catalog:
        from penstock.lake.glance_catalog import glance_through_catalog

        return glance_through_catalog(settings, table)
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(FileNotFoundError):  # tidied up since the catalog was read
            return _glance(settings, table)
    try:
        return _glance(settings, table)
    except FileNotFoundError as error:
        raise Damaged(f"the metadata of the table {table} cannot be read: {error}") from error


def _glance(settings: LakeSettings, table: str) -> Glance:
    try:
        metadata = _metadata(settings, table)
        if not metadata:
            return NOTHING
        files = tuple(_under(settings, table, metadata, _files(metadata)))
        properties = metadata.get("properties", {})
        positions, claims = decode_positions(properties), frozenset(decode_epochs(properties))
        promoted = of_properties(properties)
        return Glance(files, positions, promoted, claims, metadata["table-uuid"])
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, StopIteration, EOFError, TypeError) as error:
        raise Damaged(f"the metadata of the table {table} cannot be read: {error}") from error


def _under(
    settings: LakeSettings, table: str, metadata: Mapping[str, Any], files: Iterator[ColdFile]
) -> Iterator[ColdFile]:
    """By the paths that the warehouse has now: it may have had another name."""
    place = str(local_path(metadata.get("location", "")))
    here = str(Path(settings.warehouse) / table)
    for file in files:
        if place != here and file.path.startswith(f"{place}/"):
            file = replace(file, path=here + file.path[len(place) :])
        yield file


def glance_at_positions(settings: LakeSettings, table: str) -> Positions:
    """The positions alone, at a fraction of the cost; none where they are not to be had so."""
    if settings.catalog:
        return {}
    try:
        return decode_positions(_metadata(settings, table).get("properties", {}))
    except (OSError, ValueError) as error:
        raise Damaged(f"the metadata of the table {table} cannot be read: {error}") from error


def forget() -> None:
    """Reads every manifest again: for a lake whose files are changed by hand."""
    _files_of.cache_clear()


def _metadata(settings: LakeSettings, table: str) -> dict[str, Any]:
    location = _metadata_location(settings, table)
    found: dict[str, Any] = (
        {} if location is None else json.loads(local_path(location).read_bytes())
    )
    return found


def _metadata_location(settings: LakeSettings, table: str) -> str | None:
    path = Path(settings.warehouse) / CATALOG
    if not path.exists():
        _check_never_there(settings, table, f"{path} is gone")
        return None
    query = (
        "SELECT metadata_location FROM iceberg_tables "
        "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
    )
    wanted = (settings.catalog_name, settings.namespace, table)
    try:
        with sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", LOCK_WAIT_S, uri=True
        ) as catalog:
            row = catalog.execute(query, wanted).fetchone()
        catalog.close()
    except sqlite3.Error as error:
        raise Damaged(f"{path} cannot be read: {error}") from error
    if row is None:
        _check_never_there(settings, table, f"{path} has no table {table}")
        return None
    return str(row[0])


def _check_never_there(settings: LakeSettings, table: str, problem: str) -> None:
    """Damaged where the table has data files: they are written when it exists, not before."""
    folder = Path(data_folder(str(Path(settings.warehouse) / table)))
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        if any(True for _ in entries):
            raise Damaged(f"{problem}, though {folder} has files of it")


def _files(metadata: Mapping[str, Any]) -> Iterator[ColdFile]:
    current = metadata.get("current-snapshot-id")
    if current in (None, -1):
        return
    snapshot = next(s for s in metadata["snapshots"] if s["snapshot-id"] == current)
    numbers = _field_numbers(metadata)
    for manifest in _records(snapshot["manifest-list"]):
        yield from _files_of(manifest["manifest_path"], manifest["sequence_number"], numbers)


@lru_cache(maxsize=MANIFESTS_KEPT)
def _files_of(manifest: str, sequence: int, numbers: tuple[int, int]) -> tuple[ColdFile, ...]:
    """Manifests never change, so those that were read are remembered."""
    return tuple(
        _file(entry["data_file"], entry["sequence_number"] or sequence, *numbers)
        for entry in _records(manifest)
        if entry["status"] != _DELETED
    )


def _file(fields: Mapping[str, Any], sequence: int, time: int, namespace: int) -> ColdFile:
    lower, upper = (fields[name] for name in ("lower_bounds", "upper_bounds"))
    nulls = _bound(fields["null_value_counts"], namespace)
    return ColdFile(
        str(local_path(fields["file_path"])),
        fields["record_count"],
        fields["file_size_in_bytes"],
        next(iter(fields["partition"].values()), None),
        times_between(_bound(lower, time), _bound(upper, time)),
        only_text(_bound(lower, namespace), _bound(upper, namespace), nulls),
        sequence,
    )


def times_between(first: bytes | None, last: bytes | None) -> tuple[int, int] | None:
    """Microseconds, from the bounds of a manifest; None where it has none."""
    if first is None or last is None:
        return None
    return _MICROSECONDS.unpack(first)[0], _MICROSECONDS.unpack(last)[0]


def only_text(lowest: bytes | None, highest: bytes | None, nulls: int | None) -> str | None:
    """The value that a column has in every row; None where that is not certain."""
    if lowest is None or lowest != highest or nulls != 0 or len(lowest) >= _CUT_BYTES:
        return None
    return lowest.decode()


def _bound(values: list[dict[str, Any]] | None, number: int) -> Any:
    return next((each["value"] for each in values or () if each["key"] == number), None)


def _field_numbers(metadata: Mapping[str, Any]) -> tuple[int, int]:
    """Those of `time` and `namespace`."""
    current = metadata["current-schema-id"]
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == current)
    numbers = {field["name"]: field["id"] for field in schema["fields"]}
    return numbers["time"], numbers["namespace"]


def _records(location: str) -> Iterator[dict[str, Any]]:
    import fastavro

    with local_path(location).open("rb") as file:
        yield from fastavro.reader(file)  # type: ignore[misc]  # records of our own tables


def local_path(location: str) -> Path:
    """Where a file is that a manifest names."""
    parts = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" else Path(location)
