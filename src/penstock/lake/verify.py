"""Verifies a lake: catalog, metadata, manifests, and every page of every Parquet file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.lake.glance import CATALOG
from penstock.lake.pages import UNREADABLE, damaged_row_groups, one_line
from penstock.lake.references import catalog_tables, references
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.lake.references import NamedFile, References

_OURS: Final = (".parquet", ".avro", ".metadata.json", ".puffin", ".tmp")


@dataclass(frozen=True, slots=True)
class LakeDamage:
    """One thing that is wrong."""

    file: str
    position: int
    kind: str
    """`catalog`, `metadata`, `manifest list`, `manifest`, `missing`, `size`, `footer`, `rows`,
    `pages`."""
    detail: str
    rows_lost: int = 0


@dataclass(slots=True)
class LakeReport:
    """What was found in one lake, or in one file of it."""

    folder: str
    tables: int = 0
    files_checked: int = 0
    bytes_checked: int = 0
    rows: int = 0
    """In files that are whole."""
    damage: list[LakeDamage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether every row that the tables promise can be read."""
        return not self.damage


def lake_bytes(warehouse: Path) -> int:
    """About as much as `verify_lake` reads; 0 where that cannot be said."""
    try:
        found = [references(warehouse, table) for table in catalog_tables(warehouse)]
    except Damaged:
        return 0
    return sum(file.bytes for one in found if one is not None for file in one.files)


def verify_lake(warehouse: Path, progress: Callable[[int], object] | None = None) -> LakeReport:
    """Reads every file that the current snapshots name; changes nothing.

    Safe beside a running pipeline: what is wrong with a file that no snapshot names any more in the
    end does not count. `progress` is called with the bytes of each piece that was read.
    """
    report = LakeReport(str(warehouse), files_checked=1)
    try:
        tables = catalog_tables(warehouse)
    except Damaged as error:
        report.damage.append(LakeDamage(str(warehouse / CATALOG), 0, "catalog", str(error)))
        return report
    for table in tables:
        _verify_table(warehouse, table, report, progress or (lambda _: None))
    return report


def verify_parquet(path: Path, progress: Callable[[int], object] | None = None) -> LakeReport:
    """One Parquet file by itself: its footer and every page."""
    report = LakeReport(str(path.parent), files_checked=1, bytes_checked=path.stat().st_size)
    report.damage = list(_damage_inside(path, None, progress or (lambda _: None)))
    if not report.damage:
        report.rows = _rows_of(path)
    return report


def _verify_table(
    warehouse: Path, table: str, report: LakeReport, progress: Callable[[int], object]
) -> None:
    found = references(warehouse, table)
    if found is None:
        return
    report.tables += 1
    report.files_checked += len(found.pieces)
    report.bytes_checked += sum(path.stat().st_size for path in found.pieces if path.exists())
    damage = [LakeDamage(str(one.path), 0, one.kind, one.detail, one.rows) for one in found.broken]
    for file in found.files:
        wrong = list(_damage_of(file, progress))
        report.files_checked += 1
        report.bytes_checked += file.bytes
        report.rows += file.rows - min(file.rows, sum(each.rows_lost for each in wrong))
        damage += wrong
    report.damage += _that_still_matters(warehouse, found, damage)
    report.notes += [f"{table}: {note}" for note in (*found.notes, *_unnamed(found))]


def _damage_of(file: NamedFile, progress: Callable[[int], object]) -> Iterator[LakeDamage]:
    try:
        size = file.path.stat().st_size
    except FileNotFoundError:
        yield LakeDamage(str(file.path), 0, "missing", "the file is missing", file.rows)
        return
    if size != file.bytes:
        text = f"{size} bytes where the manifest says {file.bytes}"
        yield LakeDamage(str(file.path), min(size, file.bytes), "size", text, file.rows)
        return
    yield from _damage_inside(file.path, file.rows, progress)


def _damage_inside(
    path: Path, rows: int | None, progress: Callable[[int], object]
) -> Iterator[LakeDamage]:
    try:
        found = _rows_of(path)
        if rows is not None and found != rows:
            text = f"{found} rows where the manifest says {rows}"
            yield LakeDamage(str(path), 0, "rows", text, max(0, rows - found))
        for damage in damaged_row_groups(path, progress):
            yield LakeDamage(str(path), damage.position, "pages", damage.detail, damage.rows)
    except UNREADABLE as error:
        yield LakeDamage(str(path), 0, "footer", one_line(error), rows or 0)


def _rows_of(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def _that_still_matters(
    warehouse: Path, before: References, damage: list[LakeDamage]
) -> list[LakeDamage]:
    """Without that of files which a commit has taken out of the table meanwhile."""
    if not damage:
        return damage
    after = references(warehouse, before.table)
    if after is None:
        return []
    gone = {str(file.path) for file in before.files} - {str(file.path) for file in after.files}
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
        yield f"{len(left)} files that no snapshot names, such as {example}"
