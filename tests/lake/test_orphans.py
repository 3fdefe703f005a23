"""Files go when nothing refers to them, and not before."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.lake.expire import expire_rows, expire_snapshots
from penstock.lake.orphans import Removed, remove_orphans
from penstock.lake.target import Target
from penstock.lake.writer import DataFileWriter
from penstock.model.errors import Damaged

from .helpers import DAY, NEXT_DAY, Flush, Later, compact, numbers, spans

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.lake.tables import Lake

TOMORROW = Later(hours=24)


def data_files(table: Table) -> list[Path]:
    """Those on disk."""
    return sorted(Path(table.location(), "data").rglob("*.parquet"))


def far_ahead() -> dt.datetime:
    """Everything is older than that."""
    return dt.datetime.now(dt.UTC) + dt.timedelta(days=1)


def make_old(*paths: Path) -> None:
    """As if they had been written two days ago."""
    then = dt.datetime.now().timestamp() - 2 * 86_400
    for path in paths:
        os.utime(path, (then, then))


def test_files_of_a_crashed_batch_are_removed(table: Table) -> None:
    """Written and never committed, by a writer that another one has replaced."""
    crashed = Flush(table)
    crashed.batch(spans(range(3)), spans(range(3, 5), NEXT_DAY))
    Flush(table).flush(spans([9]))
    assert remove_orphans(table, clock=TOMORROW).files == 2
    assert len(data_files(table)) == 1
    assert numbers(table) == [9]


def test_young_files_stay(table: Table) -> None:
    """They may be of a compaction that is about to be committed."""
    Flush(table).batch(spans(range(3)))
    Flush(table)
    assert remove_orphans(table) == Removed()
    assert len(data_files(table)) == 1


def test_a_batch_in_flight_stays_however_old_it_is(table: Table) -> None:
    """Its writer is the newest and the table is where it began: it can still be committed."""
    flush = Flush(table)
    flush.flush(spans([0]))
    batch = flush.batch(spans([1]))
    remove_orphans(table, clock=TOMORROW)
    batch.commit_to(table)
    assert numbers(table) == [0, 1]


def test_the_newest_file_of_a_replacement_speaks_for_all(table: Table) -> None:
    """A compaction that takes long keeps its first files."""
    Flush(table).flush(spans([0]))
    target, key = Target.of(table), "r" + "0" * 24
    for part in range(2):
        with DataFileWriter(target, DAY, key, part) as writer:
            writer.write(spans([5]))
            writer.finish()
    make_old(next(path for path in data_files(table) if path.name.startswith(f"{key}-00000-")))
    assert remove_orphans(table) == Removed()
    assert remove_orphans(table, clock=TOMORROW).files >= 2


def test_temporary_files_are_removed(table: Table) -> None:
    """A killed writer leaves them."""
    Flush(table).flush(spans([0]))
    leftover = data_files(table)[0].with_suffix(".parquet.123-0.tmp")
    leftover.write_bytes(b"half")
    remove_orphans(table, clock=TOMORROW)
    assert not leftover.exists()
    assert numbers(table) == [0]


def test_files_of_other_kinds_are_left_alone(table: Table) -> None:
    """Somebody has put them there."""
    note = Path(table.location(), "data", "README.txt")
    Flush(table).flush(spans([0]))
    note.write_text("mine")
    make_old(note)
    remove_orphans(table, clock=TOMORROW)
    assert note.exists()


def test_replaced_files_stay_as_long_as_a_reader_may_have_them(table: Table) -> None:
    """Though the snapshot that had them is forgotten, and the files themselves are old."""
    flush = Flush(table)
    flush.flush(spans([0]))
    flush.flush(spans([1]))
    reader = table.scan()
    make_old(*data_files(table), *Path(table.location(), "metadata").iterdir())
    compact(table)
    expire_snapshots(table, far_ahead())
    remove_orphans(table)
    assert reader.to_arrow().num_rows == 2
    assert len(data_files(table)) == 3


def test_replaced_files_go_afterwards(table: Table) -> None:
    """With the manifests and lists that named them; a second look finds nothing."""
    flush = Flush(table)
    flush.flush(spans([0]))
    flush.flush(spans([1]))
    compact(table)
    assert remove_orphans(table, clock=TOMORROW) == Removed()  # snapshots still have them
    expire_snapshots(table, far_ahead())
    removed = remove_orphans(table, clock=TOMORROW)
    assert removed.files >= 4
    assert removed.bytes > 0
    assert remove_orphans(table, clock=TOMORROW) == Removed()
    assert len(data_files(table)) == 1
    assert numbers(table) == [0, 1]


def test_expired_rows_are_deleted_from_the_disk(table: Table) -> None:
    """In three steps: rows, snapshots, files."""
    Flush(table).flush(spans(range(3)), spans([3], NEXT_DAY))
    expire_rows(table, NEXT_DAY)
    expire_snapshots(table, far_ahead())
    remove_orphans(table, clock=TOMORROW)
    assert [path.parent.name for path in data_files(table)] == [f"day={NEXT_DAY.day}"]
    assert numbers(table) == [3]


def test_metadata_of_lost_races_are_removed(lake: Lake, table: Table) -> None:
    """A commit that another one beat has written its metadata file in vain."""
    Flush(table).flush(spans([0]))
    lost = Path(table.location(), "metadata", "00009-lost.metadata.json")
    lost.write_text("{}")
    remove_orphans(table, clock=TOMORROW)
    assert not lost.exists()
    assert numbers(lake.table("spans")) == [0]


def test_nothing_is_removed_from_a_table_that_misses_a_file(table: Table) -> None:
    """Table and disk do not speak of the same files: another mount, another warehouse."""
    crashed = Flush(table)
    crashed.batch(spans([5]))
    Flush(table).flush(spans([0]))
    [file] = [task.file.file_path for task in table.scan().plan_files()]
    Path(file).unlink()
    with pytest.raises(Damaged, match="is missing"):
        remove_orphans(table, clock=TOMORROW)
    assert len(data_files(table)) == 1


def test_a_forgotten_snapshot_that_cannot_be_read_is_no_obstacle(table: Table) -> None:
    """Somebody has damaged what nobody needs."""
    flush = Flush(table)
    flush.flush(spans([0]))
    flush.flush(spans([1]))
    expire_snapshots(table, far_ahead())
    lists = sorted(Path(table.location(), "metadata").glob("snap-*.avro"))
    newest = Path(table.current_snapshot().manifest_list)  # type: ignore[union-attr] # there is one
    for path in lists:
        if path != newest:
            path.write_bytes(b"no avro")
    remove_orphans(table)
    assert numbers(table) == [0, 1]


def test_an_empty_table_has_no_orphans(table: Table) -> None:
    """Nor a data folder."""
    assert remove_orphans(table, clock=TOMORROW) == Removed()
