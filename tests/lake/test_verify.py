"""Verification reads all that the tables promise, and names what cannot be read."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from penstock.lake import page_reader
from penstock.lake.page_reader import PageReader
from penstock.lake.references import references
from penstock.lake.verify import lake_bytes, verify_lake, verify_parquet
from penstock.model.damage import Damage, DamageReport

from .helpers import DAY, NEXT_DAY, Flush, compact, spans

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.lake.tables import Lake


@pytest.fixture
def warehouse(lake: Lake, table: Table) -> Path:
    """Three files of spans: 40 rows of one day, 20 and 10 of the next."""
    flush = Flush(table)
    flush.flush(spans(range(40)))
    flush.flush(spans(range(40, 60), NEXT_DAY), spans(range(60, 70), NEXT_DAY))
    return Path(lake.settings.warehouse)


def data_files(warehouse: Path) -> list[Path]:
    """Those of the current snapshot, by their rows."""
    found = references(warehouse, "otel.spans")
    assert found is not None
    return [file.path for file in sorted(found.files, key=lambda file: -file.rows)]


def metadata_files(warehouse: Path, pattern: str) -> list[Path]:
    """The newest first."""
    found = (warehouse / "spans" / "metadata").glob(pattern)
    return sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def only_damage(warehouse: Path) -> Damage:
    """The one damage that there is."""
    (damage,) = verify_lake(warehouse).damage
    return damage


def test_sound_lake_has_no_damage(warehouse: Path) -> None:
    """Catalog, metadata and data files were read; the bar reaches its end."""
    read: list[int] = []
    report = verify_lake(warehouse, read.append)
    assert (report.sound, report.notes, report.tables, report.rows) == (True, [], 1, 70)
    assert report.files_checked == 1 + 1 + 1 + 2 + 3
    assert sum(read) == lake_bytes(warehouse) < report.bytes_checked
    assert len(read) > 3 * 2


def test_empty_table_is_sound(lake: Lake) -> None:
    """It has no snapshot yet."""
    lake.table("logs")
    report = verify_lake(Path(lake.settings.warehouse))
    assert (report.sound, report.tables, report.rows) == (True, 1, 0)


def test_missing_file_costs_its_rows(warehouse: Path) -> None:
    """The others are counted."""
    gone = data_files(warehouse)[1]
    gone.unlink()
    assert only_damage(warehouse) == Damage(
        str(gone), 0, "missing", "the file is missing", rows_lost=20
    )
    assert verify_lake(warehouse).rows == 50


def test_truncated_file_is_damage_of_size(warehouse: Path) -> None:
    """Before anything in it is trusted."""
    path = data_files(warehouse)[0]
    size = path.stat().st_size
    os.truncate(path, size - 1)
    damage = only_damage(warehouse)
    assert (damage.kind, damage.position, damage.rows_lost) == ("size", size - 1, 40)


def test_damaged_footer_is_named(warehouse: Path) -> None:
    """Without it no row can be found."""
    path = data_files(warehouse)[0]
    data = bytearray(path.read_bytes())
    data[-9] ^= 0xFF
    data[-1] ^= 0xFF
    path.write_bytes(data)
    damage = only_damage(warehouse)
    assert (damage.file, damage.kind, damage.rows_lost) == (str(path), "footer", 40)


def test_damaged_pages_cost_their_row_group(warehouse: Path) -> None:
    """Position and column say where."""
    path = data_files(warehouse)[0]
    column = pq.read_metadata(path).row_group(0).column(3)
    start = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)
    damage = only_damage(warehouse)
    assert (damage.kind, damage.position, damage.rows_lost) == ("pages", start, 40)
    assert column.path_in_schema in damage.detail


def test_another_file_in_the_place_is_noticed(warehouse: Path) -> None:
    """Though it is a sound Parquet file, of the same size."""
    first, _, last = data_files(warehouse)
    size = first.stat().st_size
    first.write_bytes(last.read_bytes())
    assert only_damage(warehouse).kind == "size"
    os.truncate(first, size)
    assert only_damage(warehouse).kind in {"footer", "rows"}


@pytest.mark.parametrize(
    ("pattern", "kind", "rows"),
    [
        ("*.metadata.json", "metadata", 0),
        ("snap-*.avro", "manifest list", 70),
        ("*-m0.avro", "manifest", 30),
    ],
)
@pytest.mark.parametrize("is_missing", [True, False])
def test_unreadable_metadata_are_named(
    warehouse: Path, pattern: str, kind: str, rows: int, is_missing: bool
) -> None:
    """With the rows that cannot be found without them."""
    path = metadata_files(warehouse, pattern)[0]
    if is_missing:
        path.unlink()
    else:
        path.write_bytes(b"rubbish" + path.read_bytes()[7:])
    damage = only_damage(warehouse)
    assert (damage.file, damage.kind, damage.rows_lost) == (str(path), kind, rows)


def test_unreadable_catalog_is_named(warehouse: Path) -> None:
    """Nothing else can be said then."""
    catalog = warehouse / "catalog.db"
    catalog.write_bytes(b"rubbish" * 1000)
    damage = only_damage(warehouse)
    assert (damage.file, damage.kind) == (str(catalog), "catalog")
    assert lake_bytes(warehouse) == 0


def test_files_that_no_snapshot_names_are_notes(warehouse: Path, table: Table) -> None:
    """Of a batch that was never committed; earlier snapshots still name what was compacted."""
    compact(table, NEXT_DAY)
    assert verify_lake(warehouse).notes == []
    Flush(table).batch(spans(range(70, 80), DAY))
    report = verify_lake(warehouse)
    (note,) = report.notes
    assert (report.sound, report.rows) == (True, 70)
    assert note.startswith("otel.spans: 1 file that no snapshot names, such as data/year=")


def test_unreadable_earlier_snapshot_is_a_note(warehouse: Path) -> None:
    """What the table has now does not need it."""
    metadata_files(warehouse, "snap-*.avro")[1].unlink()
    report = verify_lake(warehouse)
    assert report.sound
    assert "earlier snapshot" in report.notes[0]


def test_file_that_is_compacted_away_meanwhile_is_no_damage(
    warehouse: Path, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is missing because the table does not need it any more."""
    old, original = data_files(warehouse)[1:], PageReader.read

    def reading(*arguments: Any) -> Any:
        if old[0].exists():
            compact(table, NEXT_DAY)
            for path in old:
                path.unlink()
        return original(*arguments)

    monkeypatch.setattr(PageReader, "read", reading)
    assert verify_lake(warehouse).damage == []
    assert not old[0].exists()


def test_looking_changes_nothing(warehouse: Path) -> None:
    """Not even a time."""
    before = {path: path.stat().st_mtime_ns for path in warehouse.rglob("*")}
    verify_lake(warehouse)
    assert {path: path.stat().st_mtime_ns for path in warehouse.rglob("*")} == before


def test_one_file_is_verified_by_itself(warehouse: Path) -> None:
    """Its rows are what its footer says."""
    path = data_files(warehouse)[0]
    report = verify_parquet(path)
    size = path.stat().st_size
    assert report == DamageReport(
        str(path.parent), lakes=1, files_checked=1, bytes_checked=size, rows=40
    )
    path.write_bytes(b"PAR1 rubbish PAR1")
    assert [damage.kind for damage in verify_parquet(path).damage] == ["footer"]


def test_no_flipped_bit_ends_the_process(warehouse: Path) -> None:
    """Not even one that ends the library which reads the file."""
    path, chance = data_files(warehouse)[0], random.Random(1)
    sound = path.read_bytes()
    with PageReader() as reader:
        for _ in range(100):
            data = bytearray(sound)
            at = chance.randrange(len(data) // 2, len(data))
            data[at] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
            reader.read(path)
        path.write_bytes(sound)
        assert (reader.read(path).rows, reader.read(path).damage) == (40, [])


def test_file_that_ends_its_reader_is_damaged(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one gets another reader."""
    monkeypatch.setattr(page_reader, "MODULE", "tests.children.aborting")
    report = verify_lake(warehouse)
    assert [damage.kind for damage in report.damage] == ["footer"] * 3
    assert all("exit code -6" in damage.detail for damage in report.damage)
