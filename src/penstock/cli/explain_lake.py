"""What `penstock inspect` says of the files of a lake: Parquet, Iceberg's metadata, the catalog."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.common import time_text
from penstock.cli.explain_records import positions_text
from penstock.lake.metadata import CATALOG
from penstock.lake.page_reader import PageReader
from penstock.lake.positions import decode_positions
from penstock.lake.references import catalog_tables, read_avro, references
from penstock.lake.verify import live_rows
from penstock.model.errors import Damaged, PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_CONTENTS: Final = {0: "data", 1: "position deletes", 2: "equality deletes"}


def catalog(path: Path, _: int) -> dict[str, Any]:
    """The names of the tables. Damaged: it cannot be read."""
    return {"kind": "lake catalog", "tables": catalog_tables(path)}


def lake(folder: Path) -> dict[str, Any]:
    """A warehouse: its tables and what they hold now."""
    tables = [_table(folder, table) for table in catalog_tables(folder / CATALOG)]
    return {"path": str(folder), "kind": "lake", "tables": tables}


def _table(folder: Path, table: str) -> dict[str, Any]:
    found = references(folder, table)
    if found is None or found.broken:
        problem = found.broken[0].detail if found is not None else "it was just removed"
        return {"table": table, "problem": problem}
    size, rows = sum(file.bytes for file in found.files), sum(file.rows for file in found.files)
    known = {"table": table, "files": len(found.files), "rows": rows, "bytes": size}
    if found.deletes:
        try:
            live = live_rows(folder, table)
        except (PenstockError, OSError) as error:
            return {"table": table, "problem": str(error)}
        known |= {"rows": live.rows, "deleted": live.deleted, "delete_files": live.delete_files}
    return known


def parquet(path: Path, _: int) -> dict[str, Any]:
    """What its footer says, after every page was read."""
    with PageReader() as reader:
        read = reader.read(path)
    problem = read.unreadable or next((damage.detail for damage in read.damage), None)
    if problem is not None:
        raise Damaged(f"{path} is not a Parquet file that can be read: {problem}")
    return {
        "kind": "Parquet file",
        "created_by": read.created_by,
        "rows": read.rows,
        "row_groups": read.row_groups,
        "columns": read.columns,
    }


def table_metadata(path: Path, _: int) -> dict[str, Any]:
    """Snapshots, columns, and what of the topics is in the table."""
    try:
        metadata: dict[str, Any] = json.loads(path.read_bytes())
        return {"kind": "table metadata", **_facts(metadata)}
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError) as error:
        raise Damaged(f"{path} is not the metadata of a table: {error!r}") from None


def _facts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    schema = next(
        one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"]
    )
    positions = decode_positions(metadata.get("properties", {}))
    return {
        "format_version": metadata["format-version"],
        "table_uuid": metadata["table-uuid"],
        "location": metadata["location"],
        "updated_at": time_text(metadata["last-updated-ms"] * 1_000_000),
        "current_snapshot": metadata.get("current-snapshot-id"),
        "snapshots": [_snapshot(one) for one in metadata.get("snapshots", ())],
        "positions": positions_text(positions),
        "columns": [f"{one['id']} {one['name']}" for one in schema["fields"]],
    }


def _snapshot(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    summary = snapshot.get("summary", {})
    return {
        "snapshot": snapshot["snapshot-id"],
        "at": time_text(snapshot["timestamp-ms"] * 1_000_000),
        "operation": summary.get("operation"),
        "rows": summary.get("total-records"),
        "files": summary.get("total-data-files"),
        "manifest_list": snapshot["manifest-list"],
    }


def manifest(path: Path, shown: int) -> dict[str, Any]:
    """A manifest, or a list of manifests; an empty file of either is taken for a list."""
    records = read_avro(path)
    try:
        if records and "data_file" in records[0]:
            files = [_data_file(record) for record in records]
            return {"kind": "manifest", "entries": len(files), "files": files[:shown]}
        manifests = [_manifest_row(record) for record in records]
    except (KeyError, TypeError) as error:
        raise Damaged(f"{path} is neither a manifest nor a list of them: {error!r}") from None
    return {"kind": "manifest list", "entries": len(manifests), "manifests": manifests[:shown]}


def _data_file(record: Mapping[str, Any]) -> dict[str, Any]:
    file = record["data_file"]
    return {
        "status": ("existing", "added", "deleted")[record["status"]],
        "file": file["file_path"],
        "content": _CONTENTS.get(file.get("content", 0), "unknown"),
        "rows": file["record_count"],
        "bytes": file["file_size_in_bytes"],
    }


def _manifest_row(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "manifest": record["manifest_path"],
        "bytes": record["manifest_length"],
        "sequence": record.get("sequence_number"),
        "added_rows": record.get("added_rows_count"),
        "existing_rows": record.get("existing_rows_count"),
    }
