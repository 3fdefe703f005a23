"""Verifies a lake: catalog, metadata, manifests, and every page of every Parquet file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.lake.deletes import Content, vector_rows
from penstock.lake.glance import glance
from penstock.lake.metadata import CATALOG
from penstock.lake.page_reader import PageReader
from penstock.lake.reader import counted
from penstock.lake.references import catalog_tables, references
from penstock.lake.settings import LakeSettings
from penstock.model.damage import Damage, DamageReport
from penstock.model.errors import Damaged, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.lake.page_reader import PagesRead
    from penstock.lake.reader import Counted
    from penstock.lake.references import NamedFile, References

_OURS: Final = (".parquet", ".avro", ".metadata.json", ".puffin", ".tmp")


def lake_bytes(warehouse: Path) -> int:
    """About as much as `verify_lake` reads; 0 where that cannot be said."""
    try:
        found = [references(warehouse, table) for table in catalog_tables(warehouse / CATALOG)]
    except Damaged:
        return 0
    return sum(file.bytes for one in found if one is not None for file in one.files)


def verify_lake(warehouse: Path, progress: Callable[[int], object] | None = None) -> DamageReport:
    """Reads every file that the current snapshots name; changes nothing.

    Safe beside a running pipeline: what is wrong with a file that no snapshot names any more in the
    end does not count. `progress` is called with the bytes of each piece that was read.
    """
    report = DamageReport(str(warehouse), lakes=1, files_checked=1)
    try:
        tables = catalog_tables(warehouse / CATALOG)
    except Damaged as error:
        report.damage.append(Damage(str(warehouse / CATALOG), 0, "catalog", str(error)))
        return report
    with PageReader() as reader:
        for table in tables:
            _verify_table(warehouse, table, report, reader, progress)
    return report


def verify_parquet(path: Path, progress: Callable[[int], object] | None = None) -> DamageReport:
    """One Parquet file by itself: its footer and every page."""
    report = DamageReport(str(path.parent), lakes=1)
    report.read(path.stat().st_size)
    with PageReader() as reader:
        read = reader.read(path, progress)
    report.damage = list(_damage_inside(path, read, read.rows))
    report.rows = max(0, read.rows - report.rows_lost)
    return report


def _verify_table(
    warehouse: Path,
    table: str,
    report: DamageReport,
    reader: PageReader,
    progress: Callable[[int], object] | None,
) -> None:
    found = references(warehouse, table)
    if found is None:
        return
    report.tables += 1
    report.files_checked += len(found.pieces)
    report.bytes_checked += sum(path.stat().st_size for path in found.pieces if path.exists())
    damage = [
        Damage(str(one.path), 0, one.kind, one.detail, rows_lost=one.rows) for one in found.broken
    ]
    for file in (*found.files, *found.deletes):
        meter = _Meter(progress, file.bytes)
        wrong = list(_damage_of(file, reader, meter.add))
        meter.end()
        report.read(file.bytes)
        if file.content is Content.DATA:
            report.rows += file.rows - min(file.rows, sum(each.rows_lost for each in wrong))
        damage += wrong
    if found.deletes and not damage:
        try:
            known = live_rows(warehouse, table)
        except (PenstockError, OSError) as error:
            damage.append(Damage(str(found.folder), 0, "deletes", str(error)))
        else:
            report.rows -= known.deleted
            told = f"{known.deleted} rows are deleted, by {known.delete_files} delete files"
            report.notes.append(f"{table}: {told}")
    report.damage += _that_still_matters(warehouse, found, damage)
    report.notes += [f"{table}: {note}" for note in (*found.notes, *_unnamed(found))]


class _Meter:
    """Tells the bytes of one file: those of its columns as they come, the rest in the end."""

    def __init__(self, progress: Callable[[int], object] | None, size: int) -> None:
        self._progress = progress or (lambda _: None)
        self._left = size

    def add(self, size: int) -> None:
        size = max(0, min(size, self._left))  # a damaged footer may say anything
        self._progress(size)
        self._left -= size

    def end(self) -> None:
        self.add(self._left)


def _damage_of(
    file: NamedFile, reader: PageReader, progress: Callable[[int], object]
) -> Iterator[Damage]:
    try:
        size = file.path.stat().st_size
    except FileNotFoundError:
        yield Damage(str(file.path), 0, "missing", "the file is missing", rows_lost=file.rows)
        return
    if size != file.bytes:
        text = f"{size} bytes where the manifest says {file.bytes}"
        yield Damage(str(file.path), min(size, file.bytes), "size", text, rows_lost=file.rows)
        return
    if file.vector is not None:
        yield from _damage_of_vector(file, file.vector)
        return
    yield from _damage_inside(file.path, reader.read(file.path, progress), file.rows)


def _damage_of_vector(file: NamedFile, place: tuple[int, int]) -> Iterator[Damage]:
    """By its own checksum; no rows are lost with it, but nobody knows which count."""
    begin, size = place
    with file.path.open("rb") as stream:
        stream.seek(begin)
        blob = stream.read(size)
    try:
        found = len(vector_rows(blob, file.path.name))
    except (Damaged, ValueError) as error:
        yield Damage(str(file.path), begin, "deletes", str(error))
        return
    if found != file.rows:
        text = f"{found} deletes where the manifest says {file.rows}"
        yield Damage(str(file.path), begin, "deletes", text)


def live_rows(warehouse: Path, table: str) -> Counted:
    """Of a table by its whole name; PenstockError or OSError where its deletes cannot be read."""
    namespace, _, name = table.rpartition(".")
    settings = LakeSettings(warehouse=str(warehouse.absolute()), namespace=namespace)
    return counted(glance(settings, name).files)


def _damage_inside(path: Path, read: PagesRead, rows: int) -> Iterator[Damage]:
    """What is wrong with a file that should have so many rows."""
    if read.unreadable is not None:
        yield Damage(str(path), 0, "footer", read.unreadable, rows_lost=rows)
        return
    if read.rows != rows:
        text = f"{read.rows} rows where the manifest says {rows}"
        yield Damage(str(path), 0, "rows", text, rows_lost=max(0, rows - read.rows))
    for damage in read.damage:
        yield Damage(str(path), damage.position, "pages", damage.detail, rows_lost=damage.rows)


def _that_still_matters(warehouse: Path, before: References, damage: list[Damage]) -> list[Damage]:
    """Without that of files which a commit has taken out of the table meanwhile."""
    if not damage:
        return damage
    after = references(warehouse, before.table)
    if after is None:
        return []
    were, are = ({*one.files, *one.deletes} for one in (before, after))
    gone = {str(file.path) for file in were} - {str(file.path) for file in are}
    return damage if after.broken else [each for each in damage if each.file not in gone]


def _unnamed(found: References) -> Iterator[str]:
    """How many files there are that no snapshot names: of batches under way, or waiting to go."""
    left = [
        path
        for folder in ("data", "metadata")
        for path in (found.folder / folder).rglob("*")
        if path.name.endswith(_OURS) and path not in found.known and path.is_file()
    ]
    if left and not found.broken:
        example = min(left).relative_to(found.folder)
        files = "1 file" if len(left) == 1 else f"{len(left)} files"
        yield f"{files} that no snapshot names, such as {example}"
