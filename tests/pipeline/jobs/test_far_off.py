"""What the jobs do with rows of far-off days."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from penstock.lake.far_off import Arrival
from penstock.lake.files import far_off_files
from penstock.lake.layout import FarOff, Side
from penstock.pipeline.jobs.compact import compact
from penstock.pipeline.jobs.rollup import rollup
from penstock.pipeline.jobs.settings import CompactSettings
from tests.lake.helpers import DAY, numbers
from tests.lake.test_far_off import around, flushed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake.tables import Lake

FEW = CompactSettings(min_files=2)


def test_compaction_makes_one_file_of_those_that_came_on_a_day(
    spark: SparkSession, lake: Lake
) -> None:
    """Of each side; rows that came on another day keep their file, and so their age."""
    table = lake.table("spans")
    for first in (0, 50, 80):  # twenty of them come again
        flushed(table, around(range(-150, -100), first=first))
    flushed(table, around(range(100, 150), first=200))
    later = DAY + dt.timedelta(days=1)
    flushed(table, around(range(-150, -100), first=300), Arrival(later, later, 10, 4))
    [report] = compact(spark, lake, FEW)
    assert (report.day, report.problem) == (FarOff(DAY, Side.PAST), None)
    assert (report.files_before, report.files_after) == (3, 1)
    assert numbers(table) == [*range(130), *range(200, 250), *range(300, 350)]
    assert sorted((str(file.day), file.rows) for file in far_off_files(table)) == [
        (f"far in the future of {DAY}", 50),
        (f"far in the past of {DAY}", 130),
        (f"far in the past of {later}", 50),
    ]


def test_rollups_compute_the_days_that_have_files(spark: SparkSession, lake: Lake) -> None:
    """Not a thousand for a clock that is wrong."""
    flushed(lake.table("spans"), around(range(-1000, 1)), Arrival(DAY, DAY, 10, 0))
    [*reports] = rollup(spark, lake, tables=["service_red_1m"])
    assert [report.day for report in reports] == [DAY - dt.timedelta(days=1), DAY]
    assert {report.problem for report in reports} == {None}
