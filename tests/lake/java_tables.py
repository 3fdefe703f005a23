"""Lakes that Iceberg's Java library has changed, brought to where a test wants them.

`tests/interop/make_iceberg_fixtures.py` says how each was made. Iceberg's metadata name every file
by its whole path, so the paths inside are those of the new place; data files stay what they are,
byte by byte.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import tarfile
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.storage import DataDirectory

FIXTURES = Path(__file__).parents[1] / "fixtures" / "iceberg-java"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in FIXTURES.glob("*.tar.xz"))


def java_lake(name: str, data: Path) -> Path:
    """The fixture as the lake of a data directory, which is made; returns the data directory."""
    DataDirectory(data).create()
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        archive.extractall(data, filter="data")
    _Move(data / "lake").run()
    return data


class _Move:
    """Changes the paths in all files of a warehouse, from the inside to the catalog."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        catalog = sqlite3.connect(warehouse / "catalog.db")
        [(location,)] = catalog.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_name = 'spans'"
        ).fetchall()
        catalog.close()
        self._old = location.partition("/spans/metadata/")[0]

    def run(self) -> None:
        """Deletes name data files, manifests name both, lists name manifests, and so on."""
        deletes = [*self._files("*-deletes.parquet"), *self._files("*.puffin")]
        for path in deletes:
            (self._puffin if path.suffix == ".puffin" else self._positions)(path)
        lists = self._files("snap-*.avro")
        for path in set(self._files("*.avro")) - set(lists):
            self._avro(path)
        for path in lists:
            self._avro(path)
        for path in self._files("*.metadata.json"):
            path.write_text(self._sourced(self._text(path.read_text())))
        with sqlite3.connect(self._warehouse / "catalog.db") as catalog:
            for column in ("metadata_location", "previous_metadata_location"):
                catalog.execute(
                    f"UPDATE iceberg_tables SET {column} = replace({column}, ?, ?)",  # noqa: S608
                    (self._old, str(self._warehouse)),
                )
        catalog.close()

    def _sourced(self, text: str) -> str:
        """The rows are from another data directory than the one that the lake is in now."""
        version, epoch = '"penstock.position.version"', '"penstock.writer-epoch'
        text = text.replace(f'{epoch}"', f'{version}:"2",{epoch}.elsewhere"')
        place = '"penstock.position.'
        return text.replace(f"{place}/default", f"{place}elsewhere/default")

    def _files(self, pattern: str) -> list[Path]:
        return sorted(self._warehouse.rglob(pattern))

    def _text(self, text: str) -> str:
        return text.replace(self._old, str(self._warehouse))

    def _positions(self, path: Path) -> None:
        with pq.ParquetFile(path) as file:
            rows = file.read()
        paths = pa.array([self._text(name) for name in rows["file_path"].to_pylist()])
        rows = rows.set_column(0, rows.schema.field("file_path"), paths)
        pq.write_table(rows.take(pc.sort_indices(rows, [("file_path", "ascending")])), path)

    def _puffin(self, path: Path) -> None:
        """The footer is `mark, JSON, its length, flags, mark`; what is before it stays."""
        content = path.read_bytes()
        (size,) = struct.unpack("<i", content[-12:-8])
        footer = self._text(content[-12 - size : -12].decode()).encode()
        kept = content[: -12 - size]
        path.write_bytes(kept + footer + struct.pack("<i", len(footer)) + content[-8:])

    def _avro(self, path: Path) -> None:
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            schema, metadata = reader.writer_schema, dict(reader.metadata)
            records = [self._moved(record) for record in reader]
        for name in ("avro.schema", "avro.codec"):
            metadata.pop(name, None)
        with path.open("wb") as file:
            fastavro.writer(file, schema, records, codec="deflate", metadata=metadata)

    def _moved(self, value: Any) -> Any:
        if isinstance(value, dict):
            found = {name: self._moved(each) for name, each in value.items()}
            for name, size in (
                ("manifest_path", "manifest_length"),
                ("file_path", "file_size_in_bytes"),
            ):
                if name in found and Path(found[name]).exists():
                    found[size] = Path(found[name]).stat().st_size
            return found
        if isinstance(value, list):
            return [self._moved(each) for each in value]
        if isinstance(value, bytes) and self._old.encode() in value:
            return self._text(value.decode()).encode()
        return self._text(value) if isinstance(value, str) else value


def metadata_of(data: Path) -> dict[str, Any]:
    """The newest metadata of `spans`."""
    catalog = sqlite3.connect(data / "lake" / "catalog.db")
    query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = 'spans'"
    [(location,)] = catalog.execute(query).fetchall()
    catalog.close()
    found: dict[str, Any] = json.loads(Path(location.removeprefix("file:")).read_bytes())
    return found
