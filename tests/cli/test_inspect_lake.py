"""`penstock inspect` explains what a lake keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.lakes import make_lake
from tests.cli.running import inspect, run
from tests.lake.helpers import SOURCE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """40 spans of one day and 30 of the next, in a commit and a file each."""
    return make_lake(tmp_path)


def newest(lake: Path, pattern: str) -> Path:
    """The file of the last commit."""
    found = (lake / "spans").rglob(pattern)
    return max(found, key=lambda path: path.stat().st_mtime_ns)


def test_lake_is_explained_by_its_folder(lake: Path) -> None:
    """Each table with what it holds now."""
    (table,) = inspect(lake)["tables"]
    assert (table["table"], table["files"], table["rows"]) == ("otel.spans", 2, 70)


def test_parquet_file_is_explained(lake: Path) -> None:
    """After all of it was read."""
    said = inspect(newest(lake, "*.parquet"))
    assert (said["kind"], said["rows"], said["row_groups"]) == ("Parquet file", 30, 1)
    assert "trace_id: string" in said["columns"]


def test_table_metadata_are_explained(lake: Path) -> None:
    """Snapshots, columns, and what of the topics is in the table."""
    said = inspect(newest(lake, "*.metadata.json"))
    assert (said["kind"], said["format_version"]) == ("table metadata", 2)
    assert [row["rows"] for row in said["snapshots"]][-2:] == ["40", "70"]
    assert said["current_snapshot"] == said["snapshots"][-1]["snapshot"]
    assert said["positions"][0].startswith(f"/default/traces partition 0 of {SOURCE}: segment ")


def test_manifests_are_explained(lake: Path) -> None:
    """And the list of them."""
    said = inspect(newest(lake, "snap-*.avro"), "--frames", "1")
    assert (said["kind"], said["entries"], len(said["manifests"])) == ("manifest list", 2, 1)
    (file,) = inspect(newest(lake, "*-m0.avro"))["files"]
    assert (file["status"], file["rows"]) == ("added", 30)


def test_catalog_is_explained(lake: Path) -> None:
    """With the names of the tables."""
    said = inspect(lake / "catalog.db")
    assert (said["kind"], said["tables"]) == ("lake catalog", ["otel.spans"])


@pytest.mark.parametrize("pattern", ["*.parquet", "*.metadata.json", "snap-*.avro", "*-m0.avro"])
def test_damaged_file_is_an_error(lake: Path, pattern: str) -> None:
    """Named, in one sentence."""
    path = newest(lake, pattern)
    path.write_bytes(b"rubbish" + path.read_bytes()[7:-7])
    answer = run("inspect", path)
    assert answer.is_one_sentence()
    assert path.name in answer.err


def test_damaged_catalog_is_an_error(lake: Path) -> None:
    """By its file and by its folder."""
    (lake / "catalog.db").write_bytes(b"rubbish" * 100)
    for path in (lake / "catalog.db", lake):
        assert run("inspect", path).is_one_sentence()


def test_text_for_people_has_every_fact(lake: Path) -> None:
    """One a line, and lists below their names."""
    answer = run("inspect", newest(lake, "*.parquet"))
    assert answer.code == 0
    assert any(line.split() == ["rows", "30"] for line in answer.out.splitlines())
