"""Lakes that Iceberg's Java library has changed, through the commands that people use.

The fixtures begin as 28 spans with the offsets 0 to 27; `make_iceberg_fixtures.py` in
`tests/interop` says what was done to each.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake.files import WrittenFile, live_files
from penstock.lake.layout import data_path, new_attempt, replacement_key
from penstock.lake.replace import replace as put_in_place
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.lake.target import Target
from penstock.storage import DataDirectory
from tests.cli.conftest import session, warm
from tests.cli.running import run
from tests.lake.helpers import Flush, span, spans
from tests.lake.java_tables import java_lake, metadata_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.lake.files import LiveFile

__all__ = ["session", "warm"]
EVERY = set(range(28))
EQUAL = {*range(24)} - {n for n in range(24) if n % 3 == 1}
LIVE = {
    "position_deletes": EVERY - {1, 3, 9, 25},
    "deletion_vectors": EVERY - {1, 3, 9, 25},
    "equality_deletes": EQUAL,
    "renamed_columns": EVERY,
    "reused_names": EVERY,
    "rewritten_files": EVERY - {1},
    "other_partitions": EVERY,
}


def asked(data: Path, sql: str) -> list[dict[str, Any]]:
    """What `penstock query` answers."""
    answer = run("query", "--data-dir", data, "--format", "json", sql)
    assert answer.code == 0, answer.err
    rows: list[dict[str, Any]] = answer.json
    return rows


def offsets(data: Path) -> list[int]:
    """Of all spans, sorted."""
    return [row["_offset"] for row in asked(data, "SELECT _offset FROM spans ORDER BY _offset")]


@pytest.mark.parametrize("name", sorted(LIVE))
def test_queries_have_the_rows_that_were_not_deleted(name: str, tmp_path: Path) -> None:
    """Position deletes, equality deletes, vectors; rewritten files, another partition spec."""
    data = java_lake(name, tmp_path / "data")
    assert offsets(data) == sorted(LIVE[name])


def test_columns_are_found_by_their_numbers(tmp_path: Path) -> None:
    """One that others added, filled and renamed; one of ours by both of its names."""
    data = java_lake("renamed_columns", tmp_path / "data")
    found = asked(data, "SELECT squad, count(*) AS n FROM spans GROUP BY ALL ORDER BY ALL")
    assert [(row["squad"], row["n"]) for row in found] == [("blue", 4), ("red", 8), (None, 16)]
    [row] = asked(data, "SELECT status_message, status_text FROM spans WHERE _offset = 24")
    assert set(row.values()) == {"told"}
    [row] = asked(data, "SELECT count(trace_state) AS n FROM spans")
    assert row["n"] == 0


def test_a_name_that_went_to_another_column_is_not_mistaken(tmp_path: Path) -> None:
    """Values stay with the column that they were written to."""
    data = java_lake("reused_names", tmp_path / "data")
    sql = "SELECT count(status_message) AS ours, count(team) AS same FROM spans"
    [row] = asked(data, sql)
    assert (row["ours"], row["same"]) == (0, 0)
    [row] = asked(data, "SELECT count(*) AS n FROM spans WHERE status_message_74 = 'blue'")
    assert row["n"] == 4


def test_a_table_of_format_3_is_read_and_not_written(tmp_path: Path) -> None:
    """Whoever would write is told so in one sentence, and nothing is changed."""
    data = java_lake("deletion_vectors", tmp_path / "data")
    before = metadata_of(data)
    answer = run("pipeline", "expire", "--data-dir", data, "--older-than", "1d", "--table", "spans")
    assert answer.code == 1
    assert "format 3" in answer.out + answer.err
    assert "Traceback" not in answer.err
    assert metadata_of(data) == before


def test_rows_are_written_beside_what_others_did(tmp_path: Path) -> None:
    """A renamed column is written as the one it was, a dropped one is not brought back."""
    data = java_lake("renamed_columns", tmp_path / "data")
    with Lake.open(LakeSettings.of(data)) as lake:
        Flush(lake.table("spans")).flush(spans(range(100, 103)))
        names = lake.table("spans").schema().column_names
    assert offsets(data) == [*range(28), 100, 101, 102]
    assert "status_text" in names
    assert {"status_message", "trace_state"}.isdisjoint(names)


def test_expiry_keeps_what_a_tag_or_a_branch_has(tmp_path: Path) -> None:
    """Files that only they refer to are no orphans."""
    data = java_lake("rewritten_files", tmp_path / "data")
    before = set((data / "lake").rglob("*.parquet"))
    ages = ("--snapshots-older-than", "0s", "--orphan-grace", "0s")
    assert run("pipeline", "expire", "--data-dir", data, *ages, "--table", "spans").code == 0
    assert set((data / "lake").rglob("*.parquet")) == before
    assert metadata_of(data)["refs"].keys() == {"main", "before_tidying", "audit"}


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("name", ["equality_deletes", "renamed_columns", "reused_names"])
def test_compaction_changes_no_row(name: str, tmp_path: Path) -> None:
    """What was deleted stays deleted, every column keeps its values, and it is a `replace`."""
    data = java_lake(name, tmp_path / "data")
    everything = "SELECT *, _offset FROM spans ORDER BY _offset"
    before = asked(data, everything)
    answer = run("pipeline", "compact", "--min-files", "2", "--data-dir", data)
    assert answer.code == 0, answer.err
    assert asked(data, everything) == before
    assert metadata_of(data)["snapshots"][-1]["summary"]["operation"] == "replace"


def promoting_lake(data: Path) -> Table:
    """Twelve spans in two files from before a promotion and one from after it."""
    DataDirectory(data).create()
    with Lake.open(LakeSettings.of(data)) as lake:
        Flush(lake.table("spans")).flush(spans(range(4)))
        Flush(lake.table("spans")).flush(spans(range(4, 8)))
    promoting = replace(LakeSettings.of(data), promoted=("number", "http.request.method"))
    with Lake.open(promoting) as lake:
        Flush(lake.table("spans")).flush(spans(range(8, 12)))
        return lake.table("spans")


def overwritten(table: Table, file: LiveFile, rows: list[dict[str, Any]]) -> None:
    """Another engine's UPDATE: it puts a file of its own in the place of one."""
    target, key = Target.of(table), replacement_key([file.path])
    path = data_path(table.location(), file.day, key, 0, new_attempt())
    pq.write_table(pa.Table.from_pylist(rows, target.columns), path)
    size, footer = Path(path).stat().st_size, pq.read_metadata(path)
    written = WrittenFile.of(path, size, file.day, footer, target)
    put_in_place(table, [file], [written], same_rows=False)


@pytest.mark.usefixtures("warm")
def test_compaction_makes_no_value_anew_that_a_file_has(tmp_path: Path) -> None:
    """What others wrote to promoted and derived columns stands, also beside older files."""
    data = tmp_path / "data"
    table = promoting_lake(data)
    masked = {"attr_number": "masked", "attr_http_request_method": None}
    derived = {"duration_ns": -1, "namespace": "theirs", "service_name": None, "_source": None}
    rows = [span(n) | masked | derived for n in (8, 9)]
    rows += [span(n, attributes=None, attr_number="inserted") for n in (10, 11, 20)]
    overwritten(table, max(live_files(table), key=lambda file: file.path), rows)
    columns = ", ".join((*masked, *derived))
    changed = f"SELECT {columns} FROM spans WHERE _offset >= 8 ORDER BY _offset"  # noqa: S608 - ours
    before = asked(data, changed)
    assert before[:2] == [masked | derived] * 2
    answer = run("pipeline", "compact", "--min-files", "2", "--data-dir", data)
    assert answer.code == 0, answer.err
    assert len(list(live_files(table.refresh()))) == 1
    assert asked(data, changed) == before
    older = asked(data, "SELECT attr_number FROM spans WHERE _offset < 8 ORDER BY _offset")
    assert [row["attr_number"] for row in older] == [str(n) for n in range(8)]


@pytest.mark.usefixtures("warm")
def test_the_pipeline_stops_at_a_table_of_format_3_by_name(tmp_path: Path) -> None:
    """One sentence, and the table is as it was."""
    data = java_lake("deletion_vectors", tmp_path / "data")
    before = metadata_of(data)
    answer = run("pipeline", "run", "--once", "--data-dir", data)
    assert answer.code == 1
    assert "spans is of Iceberg's format 3" in answer.err
    assert "Traceback" not in answer.err
    assert metadata_of(data) == before


@pytest.mark.parametrize("name", ["deletion_vectors", "equality_deletes", "position_deletes"])
def test_all_commands_count_the_rows_that_are_live(name: str, tmp_path: Path) -> None:
    """`status`, `inspect` and `fsck` say the same, and name delete files apart."""
    data, live = java_lake(name, tmp_path / "data"), len(LIVE[name])
    tier = run("status", "--json", "--data-dir", data).json["tiers"]["spans"]
    [table] = (
        table
        for table in run("inspect", "--json", data / "lake").json["tables"]
        if table["table"].endswith("spans")
    )
    found = run("fsck", "--json", data).json
    assert (tier["cold_rows"], table["rows"], found["rows"]) == (live, live, live)
    assert tier["cold_files"] == table["files"]
    deleted, files = tier["cold_deleted"], tier["cold_delete_files"]
    assert (table["deleted"], table["delete_files"]) == (deleted, files)
    assert deleted > 0
    assert any(f"{deleted} rows are deleted, by {files} delete" in note for note in found["notes"])
    shown = run("status", "--data-dir", data).out
    assert f"{live} rows in {tier['cold_files']} files" in shown
    assert f"{deleted} deleted by {files} files" in shown


@pytest.mark.parametrize("name", ["deletion_vectors", "equality_deletes", "position_deletes"])
def test_fsck_counts_live_rows_and_reads_deletes(name: str, tmp_path: Path) -> None:
    """A delete file that is damaged is damage, since nobody knows which rows count."""
    data = java_lake(name, tmp_path / "data")
    answer = run("fsck", "--json", data)
    assert (answer.code, answer.json["rows"]) == (0, len(LIVE[name]))
    patterns = {"deletion_vectors": "*.puffin", "equality_deletes": "eq-*.parquet"}
    files = sorted((data / "lake").rglob(patterns.get(name, "*-deletes.parquet")))
    for file in files:
        content = bytearray(file.read_bytes())
        content[12] ^= 0xFF
        file.write_bytes(content)
    answer = run("fsck", "--json", data)
    assert answer.code == 1
    damaged = {damage["file"] for damage in answer.json["damage"]}
    assert damaged
    assert damaged <= set(map(str, files))
