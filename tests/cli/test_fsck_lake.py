"""`penstock fsck` on a lake, and on a data directory with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.lakes import make_lake
from tests.cli.running import fsck, log_folder, run
from tests.log.small_logs import flip_message

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def lake(data: Path) -> Path:
    """40 spans of one day and 30 of the next."""
    return make_lake(data)


def files(lake: Path) -> list[Path]:
    """The data files, by day."""
    return sorted(lake.rglob("*.parquet"))


def test_sound_lake_exits_with_0(lake: Path) -> None:
    """Its rows are counted, and for people named."""
    code, found = fsck(lake)
    assert (code, found["sound"], found["tables"], found["rows"]) == (0, True, 1, 70)
    lines = run("fsck", lake).out.splitlines()
    assert lines[0].endswith("1 table, 70 rows")
    assert lines[-1] == "sound"


def test_lake_of_a_data_directory_is_verified_with_it(data: Path, lake: Path) -> None:
    """Logs and tables in one answer."""
    code, found = fsck(data)
    assert (code, found["logs"], found["messages"], found["rows"]) == (0, 2, 67, 70)
    files(lake)[0].unlink()
    code, found = fsck(data)
    (row,) = found["damage"]
    assert (code, row["kind"]) == (1, "missing")
    assert (found["messages_lost"], found["rows_lost"], found["rows"]) == (0, 40, 30)


def test_verdict_for_people_says_the_rows(lake: Path) -> None:
    """And exits with 1."""
    files(lake)[0].unlink()
    answer = run("fsck", lake)
    assert answer.code == 1
    assert answer.out.splitlines()[-1] == "1 damaged place, 0 messages and 40 rows lost"
    assert "the file is missing, 40 rows lost" in answer.out


def test_unreadable_catalog_is_damage(lake: Path) -> None:
    """Not an empty lake."""
    (lake / "catalog.db").write_bytes(b"rubbish" * 100)
    code, found = fsck(lake)
    assert (code, [row["kind"] for row in found["damage"]]) == (1, ["catalog"])


def test_repair_says_that_a_lake_cannot_be(lake: Path) -> None:
    """And changes nothing."""
    files(lake)[0].unlink()
    code, found = fsck(lake, "--repair")
    assert (code, found["after"]["sound"]) == (1, False)
    assert "one copy" in found["not_repaired"]


def test_repair_of_a_data_directory_leaves_its_lake_damaged(data: Path, lake: Path) -> None:
    """The log is repaired all the same, and the exit code says that not all is well."""
    files(lake)[0].unlink()
    flip_message(log_folder(data), 20, 33)
    code, found = fsck(data, "--repair")
    assert (code, found["repaired"], len(found["damage"])) == (1, True, 2)
    assert [row["kind"] for row in found["after"]["damage"]] == ["missing"]
    assert "1 still damaged" not in run("fsck", "--repair", data).out


def test_one_file_can_be_verified(lake: Path) -> None:
    """By itself, without the tables."""
    path = files(lake)[1]
    assert fsck(path)[1]["rows"] == 30
    path.write_bytes(path.read_bytes()[:-3])
    code, found = fsck(path)
    assert (code, [row["kind"] for row in found["damage"]]) == (1, ["footer"])
