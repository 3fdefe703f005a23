"""What the tables of a lake refer to, read piece by piece, so that each damaged piece has a name.

Reads the SQLite catalog and Iceberg's own files; makes and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.lake.deletes import Content
from penstock.lake.manifests import DELETED, records
from penstock.lake.metadata import CATALOG, SqliteCatalog, TableMetadata, local_path
from penstock.lake.page_reader import one_line
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LOOKS: Final = 5


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
    with SqliteCatalog.reading(file) as catalog:
        return catalog.tables()


def references(warehouse: Path, table: str) -> References | None:
    """The table as its last commit left it; None where it is in the catalog no more."""
    location = _metadata_location(warehouse, table)
    if location is None:
        return None
    path = local_path(location)
    found = References(table, path.parent.parent)
    try:
        metadata = TableMetadata.read(location)
        found.folder = local_path(metadata.document["location"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        found.broken.append(BrokenPiece(path, "metadata", one_line(error)))
        return found
    found.pieces.add(path)
    found.known.add(path)
    earlier = metadata.document.get("metadata-log", ())
    found.known |= {local_path(each["metadata-file"]) for each in earlier}
    _add_snapshots(found, metadata)
    return found


def _metadata_location(warehouse: Path, table: str) -> str | None:
    namespace, _, name = table.rpartition(".")
    for _ in range(_LOOKS):
        with SqliteCatalog.reading(warehouse / CATALOG) as catalog:
            location = catalog.location(namespace, name)
        if location is None or local_path(location).exists():
            break  # else tidied up since the catalog was read
    return location


def _add_snapshots(found: References, metadata: TableMetadata) -> None:
    seen: dict[Path, list[NamedFile]] = {}
    current = metadata.current_snapshot_id
    for snapshot in metadata.snapshots:
        is_current = snapshot["snapshot-id"] == current
        try:
            _add_snapshot(found, snapshot, seen, is_current=is_current)
        except Damaged as error:
            found.notes.append(f"an earlier snapshot cannot be read any more: {error}")
    try:
        metadata.current_snapshot()
    except KeyError as error:
        found.broken.append(BrokenPiece(found.folder, "metadata", str(error.args[0])))


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
        live = (entry for entry in read_avro(manifest) if entry["status"] != DELETED)
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
            return list(records(file))
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing") from None
    except Exception as error:  # fastavro has no error of its own
        raise Damaged(f"{path.name} cannot be read: {one_line(error)}") from error
