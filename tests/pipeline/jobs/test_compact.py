"""Small files become large ones; no row is lost, none is there twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.lake.orphans import remove_orphans
from penstock.lake.schemas import SPANS
from penstock.lake.tables import Lake, Shape
from penstock.model.errors import FilesReplaced, InvalidArgument, InvalidSetting
from penstock.pipeline.jobs.compact import commit_day, compact, compact_day, plan_day, write_day
from penstock.pipeline.jobs.settings import CompactSettings
from tests.lake.helpers import DAY, NEXT_DAY, Flush, Later, spans
from tests.pipeline.jobs.helpers import content, paths, rows_of_files, stored

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

TWO = CompactSettings(min_files=2)
IN_TURNS = CompactSettings(min_files=2, memory_bytes=6_000_000)
"""Memory for two small files at once."""


def several(lake: Lake, count: int = 4, rows: int = 6) -> Table:
    """A table with so many files of one day, whose rows are mingled."""
    table = lake.table("spans")
    flush = Flush(table)
    for number in range(count):
        flush.flush(spans(range(number, count * rows, count)))
    return table


def size(path: str) -> int:
    """Of a file."""
    return Path(path).stat().st_size


def test_small_files_become_one_with_the_same_rows(spark: SparkSession, lake: Lake) -> None:
    """Every column of every row is as it was, and the report says what was done."""
    table = several(lake)
    before = content(table)
    [report] = compact(spark, lake, TWO)
    assert (report.table, report.day, report.problem) == ("spans", DAY, None)
    assert (report.files_before, report.files_after, report.rows) == (4, 1, 24)
    assert report.bytes_after < report.bytes_before
    assert content(table) == before


def test_second_compaction_finds_nothing(spark: SparkSession, lake: Lake) -> None:
    """The table is not touched."""
    table = several(lake)
    list(compact(spark, lake, TWO))
    before = table.refresh().metadata_location
    assert list(compact(spark, lake, TWO)) == []
    assert table.refresh().metadata_location == before


def test_day_with_few_small_files_waits(spark: SparkSession, lake: Lake) -> None:
    """Merging two files each time that there are two would write all rows again and again."""
    several(lake, count=3)
    assert list(compact(spark, lake, CompactSettings(min_files=4))) == []


def test_large_files_stay_as_they_are(spark: SparkSession, lake: Lake) -> None:
    """A file of half the target is done."""
    table = several(lake, count=3)
    Flush(table).flush(spans(range(100, 600)))
    large = max(paths(table), key=size)
    [report] = compact(spark, lake, CompactSettings(min_files=2, target_bytes=2 * size(large)))
    assert (report.files_before, report.files_after) == (4, 2)
    assert large in paths(table)


def test_repeated_row_leaves_a_large_file_too(spark: SparkSession, lake: Lake) -> None:
    """The day is free of repeats, also where files are not merged."""
    table = several(lake, count=3)
    again = spans(range(100, 600)).to_pylist()
    again[7] |= {"trace_id": f"{4 // 4:032x}", "span_id": f"{4:016x}"}
    Flush(table).flush(pa.Table.from_pylist(again, schema=SPANS))
    large = max(paths(table), key=size)
    settings = CompactSettings(min_files=2, target_bytes=2 * (size(large) - 1000))
    [report] = compact(spark, lake, settings)
    assert (report.repeats, report.files_after, rows_of_files(table)) == (1, 2, [18, 499])
    assert large not in paths(table)


def test_only_the_named_days_and_tables_are_compacted(spark: SparkSession, lake: Lake) -> None:
    """Others wait."""
    table = several(lake)
    flush = Flush(table)
    for number in (50, 51):
        flush.flush(spans([number], NEXT_DAY))
    assert list(compact(spark, lake, TWO, tables=["logs"])) == []
    [report] = compact(spark, lake, TWO, days=[NEXT_DAY])
    assert (report.day, len(paths(table)), len(paths(table, NEXT_DAY))) == (NEXT_DAY, 4, 1)


def test_rollups_are_not_compacted(spark: SparkSession, lake: Lake) -> None:
    """Each of their days is written as a whole."""
    with pytest.raises(InvalidArgument, match="traces"):
        list(compact(spark, lake, TWO, tables=["traces"]))


def test_rows_without_a_time_are_compacted_too(spark: SparkSession, lake: Lake) -> None:
    """They share a day that is none."""
    table = lake.table("spans")
    flush = Flush(table)
    for number in range(3):
        flush.flush(spans([number], None))
    [report] = compact(spark, lake, TWO)
    assert (report.day, report.files_after, rows_of_files(table)) == (None, 1, [3])


def test_files_from_before_a_new_column_have_nulls_there(spark: SparkSession, lake: Lake) -> None:
    """Old and new files become one."""
    several(lake, count=2)
    table = lake.table("spans", Shape(pa.schema([*SPANS, ("zone", pa.string())])))
    rows = spans([100])
    Flush(table).flush(rows.append_column("zone", pa.array(["a"])))
    [report] = compact(spark, lake, TWO)
    zones = table.refresh().scan(selected_fields=("zone",)).to_arrow()["zone"]
    assert (report.files_after, zones.drop_null().to_pylist(), zones.null_count) == (1, ["a"], 12)


def test_merging_within_little_memory_takes_turns(spark: SparkSession, lake: Lake) -> None:
    """Two files at once, then two of what they became."""
    table = several(lake)
    before = content(table)
    list(compact(spark, lake, IN_TURNS))
    operations = [s.summary["penstock.operation"] for s in table.refresh().metadata.snapshots]
    assert operations.count("compact") == 2
    assert content(table) == before
    assert len(paths(table)) == 1


# --- beside others -----------------------------------------------------------------------------


def test_rows_flushed_meanwhile_stay(spark: SparkSession, lake: Lake) -> None:
    """A commit between the plan and its own is kept, with its positions."""
    table = several(lake)
    plan = plan_day(spark, "spans", table, DAY, TWO)
    assert plan is not None
    written = write_day(spark, plan)
    Flush(lake.table("spans")).flush(spans([100, 101]))
    commit_day(table, plan, written)
    assert rows_of_files(table) == [2, 24]


def test_of_two_compactions_one_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    """The slower one is told, and the table stays as the faster one left it."""
    table, same = several(lake), lake.table("spans")
    plans = [plan_day(spark, "spans", each, DAY, TWO) for each in (table, same)]
    assert plans[0] is not None
    assert plans[1] is not None
    first, second = write_day(spark, plans[0]), write_day(spark, plans[1])
    commit_day(table, plans[0], first)
    left = (content(table), table.metadata_location)
    with pytest.raises(FilesReplaced):
        commit_day(same, plans[1], second)
    assert (content(table), table.metadata_location) == left


def test_lost_race_is_in_the_report(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no error of the run."""
    table = several(lake)

    def late(*_: object) -> int:
        raise FilesReplaced("another one was faster")

    monkeypatch.setattr("penstock.pipeline.jobs.compact.commit_day", late)
    report = compact_day(spark, "spans", table, DAY, TWO)
    assert (report.problem, report.files_after) == ("another one was faster", 4)


def test_killed_before_its_commit_it_leaves_orphans_only(spark: SparkSession, lake: Lake) -> None:
    """The next one does the work, and what was left is deleted later."""
    table = several(lake)
    before = content(table)
    plan = plan_day(spark, "spans", table, DAY, IN_TURNS)
    assert plan is not None
    left = {Path(file.path) for file in write_day(spark, plan)}
    assert content(table) == before
    list(compact(spark, lake, TWO))
    assert content(table) == before
    assert left <= stored(table)
    remove_orphans(table, clock=Later(hours=2))
    assert not left & stored(table)
    assert content(table) == before


def test_damaged_file_keeps_only_its_own_day_from_being_compacted(
    spark: SparkSession, lake: Lake
) -> None:
    """It is named, and other days go on."""
    table = several(lake)
    flush = Flush(table)
    for number in (50, 51):
        flush.flush(spans([number], NEXT_DAY))
    broken = Path(paths(table)[0])
    broken.write_bytes(b"PAR1" + bytes(100))
    damaged, sound = compact(spark, lake, TWO)
    assert (damaged.problem or "").startswith(f"{broken} cannot be read: Parquet magic bytes")
    assert (damaged.files_after, sound.problem, sound.files_after) == (4, None, 1)


@pytest.mark.parametrize(
    "wrong", [{"target_bytes": 0}, {"min_files": 1}, {"memory_bytes": -1}], ids=str
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    """At once, with the name of the setting."""
    with pytest.raises(InvalidSetting, match=next(iter(wrong))):
        CompactSettings(**wrong)


def test_compaction_fills_promoted_columns_of_older_rows(spark: SparkSession, lake: Lake) -> None:
    """Which were null, since the files were written before."""
    several(lake)
    with Lake.open(replace(lake.settings, promoted=("number",))) as promoting:
        table = promoting.table("spans")  # as the pipeline opens it
        list(compact(spark, promoting, TWO))
        rows = table.refresh().scan().to_arrow()
    assert sorted(map(int, rows["attr_number"].to_pylist())) == list(range(24))
