"""What the tables of a lake refer to, read piece by piece, so that each damaged piece has a name.

Reads the SQLite catalog and Iceberg's own files; makes and changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import fastavro

from penstock.lake.deletes import Content
from penstock.lake.glance import CATALOG, LOCK_WAIT_S, local_path
from penstock.lake.page_reader import one_line
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LOOKS: Final = 5
_DELETED: Final = 2


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file as a manifest has it."""

    path: Path
    rows: int
    """Or deletes, of a delete file."""
    bytes: int
    content: Content = Content.DATA
    vector: tuple[int, int] | None = None
    """Where in it a deletion vector is."""


@dataclass(frozen=True, slots=True)
class BrokenPiece:
    """A piece of the metadata that cannot be read."""

    path: Path
    kind: str
    """`metadata`, `manifest list` or `manifest`."""
    detail: str
    rows: int = 0
    """Those that cannot be found without it."""


@dataclass(slots=True)
class References:
    """What one table refers to."""

    table: str
    folder: Path
    files: list[NamedFile] = field(default_factory=list)
    """The data files of the current snapshot."""
    deletes: list[NamedFile] = field(default_factory=list)
    """Its delete files; one for each vector of a file of vectors."""
    pieces: set[Path] = field(default_factory=set)
    """Metadata, manifest lists and manifests of the current snapshot that were read."""
    known: set[Path] = field(default_factory=set)
    """Everything that any snapshot refers to."""
    broken: list[BrokenPiece] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def catalog_tables(file: Path) -> list[str]:
    """The tables as `namespace.name`; Damaged: the catalog cannot be read."""
    query = "SELECT table_namespace, table_name FROM iceberg_tables ORDER BY 1, 2"
    with _catalog(file) as catalog:
        (state,) = catalog.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise Damaged(f"{file} cannot be read: {one_line(ValueError(state))}")
        return [f"{namespace}.{name}" for namespace, name in catalog.execute(query)]


def references(warehouse: Path, table: str) -> References | None:
    """The table as its last commit left it; None where it is in the catalog no more."""
    for look in range(_LOOKS):
        location = _metadata_location(warehouse, table)
        if location is None:
            return None
        path = local_path(location)
        if path.exists() or look == _LOOKS - 1:  # else tidied up since the catalog was read
            break
    found = References(table, path.parent.parent)
    try:
        metadata: dict[str, Any] = json.loads(path.read_bytes())
        found.folder = local_path(metadata["location"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        found.broken.append(BrokenPiece(path, "metadata", one_line(error)))
        return found
    found.pieces.add(path)
    found.known.add(path)
    found.known |= {local_path(each["metadata-file"]) for each in metadata.get("metadata-log", ())}
    _add_snapshots(found, metadata)
    return found


def _add_snapshots(found: References, metadata: Mapping[str, Any]) -> None:
    seen: dict[Path, list[NamedFile]] = {}
    current = metadata.get("current-snapshot-id")
    snapshots = metadata.get("snapshots", ())
    for snapshot in snapshots:
        is_current = snapshot["snapshot-id"] == current
        try:
            _add_snapshot(found, snapshot, seen, is_current=is_current)
        except Damaged as error:
            found.notes.append(f"an earlier snapshot cannot be read any more: {error}")
    if current not in (None, -1) and current not in {one["snapshot-id"] for one in snapshots}:
        text = f"the current snapshot {current} is not among the snapshots"
        found.broken.append(BrokenPiece(found.folder, "metadata", text))


def _add_snapshot(
    found: References,
    snapshot: Mapping[str, Any],
    seen: dict[Path, list[NamedFile]],
    *,
    is_current: bool,
) -> None:
    """Damaged: an earlier one cannot be read. What of the current one cannot is in `broken`."""
    path = local_path(snapshot["manifest-list"])
    found.known.add(path)
    try:
        manifests = read_avro(path)
    except Damaged as error:
        if not is_current:
            raise
        rows = int(snapshot.get("summary", {}).get("total-records", 0))
        found.broken.append(BrokenPiece(path, "manifest list", str(error), rows))
        return
    if is_current:
        found.pieces.add(path)
    for manifest in manifests:
        _add_manifest(found, manifest, seen, is_current=is_current)


def _add_manifest(
    found: References,
    manifest: Mapping[str, Any],
    seen: dict[Path, list[NamedFile]],
    *,
    is_current: bool,
) -> None:
    path = local_path(manifest["manifest_path"])
    found.known.add(path)
    try:
        files = seen[path] if path in seen else _files_of(path)
    except Damaged as error:
        if not is_current:
            raise
        counts = (manifest.get(f"{kind}_rows_count") for kind in ("added", "existing"))
        rows = sum(count or 0 for count in counts)
        found.broken.append(BrokenPiece(path, "manifest", str(error), rows))
        return
    seen[path] = files
    found.known |= {file.path for file in files}
    if is_current:
        found.pieces.add(path)
        found.files += [file for file in files if file.content is Content.DATA]
        found.deletes += [file for file in files if file.content is not Content.DATA]


def _files_of(manifest: Path) -> list[NamedFile]:
    try:
        live = (entry for entry in read_avro(manifest) if entry["status"] != _DELETED)
        return [_named(entry["data_file"]) for entry in live]
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"not a manifest: {one_line(error)}") from None


def _named(fields: Mapping[str, Any]) -> NamedFile:
    offset, size = fields.get("content_offset"), fields.get("content_size_in_bytes")
    is_vector = str(fields["file_format"]).upper() == "PUFFIN" and None not in (offset, size)
    return NamedFile(
        local_path(fields["file_path"]),
        fields["record_count"],
        fields["file_size_in_bytes"],
        Content(fields.get("content", 0)),
        (int(offset or 0), int(size or 0)) if is_vector else None,
    )


def read_avro(path: Path) -> list[dict[str, Any]]:
    """The records of a manifest or of a list of manifests; Damaged where there are none to read."""
    try:
        with path.open("rb") as file:
            return list(fastavro.reader(file))  # type: ignore[arg-type]  # records are dicts here
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing") from None
    except Exception as error:  # fastavro has no error of its own
        raise Damaged(f"{path.name} cannot be read: {one_line(error)}") from error


def _metadata_location(warehouse: Path, table: str) -> str | None:
    namespace, _, name = table.rpartition(".")
    query = (
        "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
    )
    with _catalog(warehouse / CATALOG) as catalog:
        row = catalog.execute(query, (namespace, name)).fetchone()
    return None if row is None else str(row[0])


@contextlib.contextmanager
def _catalog(path: Path) -> Any:
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", LOCK_WAIT_S, uri=True)
        ) as catalog:
            yield catalog
    except sqlite3.Error as error:
        raise Damaged(f"{path} cannot be read: {error}") from error
