"""A writer that is killed at any point of a flush leaves all of it or nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.lake.orphans import remove_orphans
from penstock.lake.positions import read_positions
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake

from .helpers import Flush, Later, numbers, spans

FLUSH_AND_DIE = """
import os, signal, sys
from pathlib import Path
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from tests.lake.helpers import Flush, spans

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

point = sys.argv[2]
table = Lake.open(LakeSettings.of(Path(sys.argv[1]))).table("spans")
flush = Flush(table)
flush.flush(spans([0]))
batch = flush.batch(spans([1, 2]))
real = table.catalog.commit_table
if point == "files written":
    die()
if point == "metadata written":
    write = table.catalog._write_metadata
    table.catalog._write_metadata = lambda *a, **k: (write(*a, **k), die())
if point == "committed":
    table.catalog.commit_table = lambda *a, **k: (real(*a, **k), die())
batch.commit_to(table)
"""


@pytest.mark.parametrize("point", ["files written", "metadata written", "committed"])
def test_a_killed_flush_is_in_the_table_whole_or_not_at_all(point: str, tmp_path: Path) -> None:
    """Its successor goes on from the positions, and no row is lost or there twice."""
    command = [sys.executable, "-c", FLUSH_AND_DIE, str(tmp_path), point]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    assert killed.returncode == -signal.SIGKILL
    with Lake.open(LakeSettings.of(tmp_path)) as lake:
        table = lake.table("spans")
        [position] = read_positions(table).values()
        found = numbers(table)
        assert (found, position.offset) == (([0, 1, 2], 20) if point == "committed" else ([0], 10))
        flush = Flush(table)
        flush.flush(spans(range(len(found), 5)))
        assert numbers(table) == [0, 1, 2, 3, 4]
        removed = remove_orphans(table, clock=Later(hours=24))
        assert (removed.files > 0) == (point != "committed")
        assert numbers(table) == [0, 1, 2, 3, 4]
        assert len(list(Path(table.location(), "data").rglob("*.parquet"))) == (
            3 if point == "committed" else 2
        )
