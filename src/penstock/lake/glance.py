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
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.lake.columns import columns_document, columns_of, number_of, recorded
from penstock.lake.deletes import check_readable, plain_path
from penstock.lake.layout import data_folder
from penstock.lake.manifests import (
    DELETED,
    DELETES,
    delete_index,
    global_specs,
    partition_of,
    records,
    sequence_of,
)
from penstock.lake.noted import Noted
from penstock.lake.positions import decode_epochs, decode_positions
from penstock.lake.promoted import of_properties, with_columns
from penstock.lake.schemas import TABLES
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.lake.columns import Columns
    from penstock.lake.deletes import DeleteIndex, Deletions
    from penstock.lake.promoted import Promoted
    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import Positions

CATALOG: Final = "catalog.db"
MANIFESTS_KEPT: Final = 256
LOCK_WAIT_S: Final = 5.0
"""How long a catalog may be locked before it counts as unreadable."""
_LOOKS: Final = 5
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
    deletes: Deletions | None = None
    """What was deleted of it; None: nothing."""
    columns: Columns | None = field(default=None, compare=False, repr=False)
    """How its columns are found. None: by their names, all of them."""


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
    columns: Columns | None = None
    """Those of the table; None where there is no table."""
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
        properties = metadata.get("properties", {})
        promoted = of_properties(properties)
        columns = table_columns(
            table, promoted, properties, metadata["schemas"], metadata["current-schema-id"]
        )
        moved = _moved(settings, table, metadata)
        noted = Noted(settings, table, metadata["table-uuid"], field_numbers(columns))
        files = (_moved_file(file, moved) for file in _files(metadata, columns, noted))
        positions, claims = decode_positions(properties), frozenset(decode_epochs(properties))
        identity = metadata["table-uuid"]
        return Glance(tuple(files), positions, promoted, claims, columns, identity)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, StopIteration, EOFError, TypeError) as error:
        raise Damaged(f"the metadata of the table {table} cannot be read: {error}") from error


def table_columns(
    table: str,
    promoted: Iterable[Promoted],
    properties: Mapping[str, str],
    schemas: list[dict[str, Any]],
    current_id: int,
) -> Columns:
    """The columns of a table, of its metadata."""
    ours = with_columns(TABLES[table], promoted).names if table in TABLES else ()
    names = dict.fromkeys([*ours, *recorded(properties)])
    return columns_of(columns_document(names, properties, schemas, current_id))


def _moved(settings: LakeSettings, table: str, metadata: Mapping[str, Any]) -> tuple[str, str]:
    """The folder that the table had when it was made, and the one that it has now."""
    place = str(local_path(metadata.get("location", "")))
    return place, str(Path(settings.warehouse) / table)


def _moved_path(path: str, moved: tuple[str, str]) -> str:
    place, here = moved
    return here + path[len(place) :] if place != here and path.startswith(f"{place}/") else path


def _moved_file(file: ColdFile, moved: tuple[str, str]) -> ColdFile:
    """By the paths that the warehouse has now: it may have had another name."""
    if moved[0] == moved[1]:
        return file
    deletes = file.deletes
    if deletes is not None:
        files = (replace(each, path=_moved_path(each.path, moved)) for each in deletes.files)
        deletes = replace(deletes, files=tuple(files))
    return replace(file, path=_moved_path(file.path, moved), deletes=deletes)


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


def _files(metadata: Mapping[str, Any], columns: Columns, noted: Noted) -> Iterator[ColdFile]:
    current = metadata.get("current-snapshot-id")
    if current in (None, -1):
        return
    snapshot = next(s for s in metadata["snapshots"] if s["snapshot-id"] == current)
    numbers = field_numbers(columns)
    how = None if columns.is_plain else columns
    manifests = list(_records(snapshot["manifest-list"]))
    deletes = _deletes(metadata, manifests)
    noted.expect(sum(map(_count, manifests)))
    for manifest in manifests:
        if manifest.get("content", 0) != DELETES:
            sequence, spec_id = manifest.get("sequence_number", 0), manifest["partition_spec_id"]
            listed = _listed(manifest["manifest_path"], sequence, numbers, noted)
            if deletes is None and how is None:
                yield from (file for file, _ in listed)
            else:
                yield from (_with(file, part, spec_id, deletes, how) for file, part in listed)
    noted.end()


def _count(manifest: Mapping[str, Any]) -> int:
    """Files of a manifest; a table of format 1 may not say."""
    names = ("added_files_count", "existing_files_count")
    return sum(manifest.get(name) or 0 for name in names)


def _listed(
    manifest: str, sequence: int, numbers: tuple[int, int], noted: Noted
) -> Iterable[tuple[ColdFile, tuple[Any, ...]]]:
    if not noted.is_on:
        return _files_of(manifest, sequence, numbers)

    def read() -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return [(_fields(file), part) for file, part in _files_of(manifest, sequence, numbers)]

    return [(ColdFile(*fields), part) for fields, part in noted.files(manifest, read)]


def _fields(file: ColdFile) -> tuple[Any, ...]:
    """What a manifest says of it."""
    known = (file.path, file.rows, file.bytes, file.day, file.times_us, file.namespace)
    return (*known, file.sequence)


def _with(
    file: ColdFile,
    partition: tuple[Any, ...],
    spec_id: int,
    deletes: DeleteIndex | None,
    columns: Columns | None,
) -> ColdFile:
    found = deletes.of(file.path, file.sequence, spec_id, partition) if deletes else None
    return replace(file, deletes=found, columns=columns)


def _deletes(metadata: Mapping[str, Any], manifests: list[dict[str, Any]]) -> DeleteIndex | None:
    named = tuple(
        (each["manifest_path"], each["sequence_number"], each["partition_spec_id"])
        for each in manifests
        if each.get("content", 0) == DELETES
    )
    return _index_of(named, global_specs(metadata["partition-specs"])) if named else None


@lru_cache(maxsize=16)
def _index_of(
    manifests: tuple[tuple[str, int, int], ...], whole: frozenset[int]
) -> DeleteIndex | None:
    return delete_index(lambda path: local_path(path).open("rb"), manifests, whole)


@lru_cache(maxsize=MANIFESTS_KEPT)
def _files_of(
    manifest: str, sequence: int, numbers: tuple[int, int]
) -> tuple[tuple[ColdFile, tuple[Any, ...]], ...]:
    """With their partitions. Manifests never change, so those that were read are remembered."""
    return tuple(
        (
            _file(entry["data_file"], sequence_of(entry, sequence), *numbers),
            partition_of(entry["data_file"]),
        )
        for entry in _records(manifest)
        if entry["status"] != DELETED
    )


def _file(fields: Mapping[str, Any], sequence: int, time: int, namespace: int) -> ColdFile:
    path = str(local_path(fields["file_path"]))
    check_readable(fields, path)
    lower, upper = (fields[name] for name in ("lower_bounds", "upper_bounds"))
    nulls = _bound(fields["null_value_counts"], namespace)
    day = next(iter(fields["partition"].values()), None)
    return ColdFile(
        path,
        fields["record_count"],
        fields["file_size_in_bytes"],
        day if type(day) is date else None,
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


def field_numbers(columns: Columns) -> tuple[int, int]:
    """Those of `time` and `namespace`; -1 where the table has no such column."""
    found = {each.name: number_of(each) for each in columns.schema}
    return found.get("time") or -1, found.get("namespace") or -1


def _records(location: str) -> Iterator[dict[str, Any]]:
    with local_path(location).open("rb") as file:
        yield from records(file)


def local_path(location: str) -> Path:
    """Where a file is that a manifest names."""
    return Path(plain_path(location))
