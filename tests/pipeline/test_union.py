"""`spark.read` over all tiers: each acknowledged row once, wherever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.pipeline.flush.helpers import Plain, logs, without_spark
from tests.pipeline.helpers import DAY_NS, LOGS, MORNING_NS, Data, named, names, spans
from tests.query.helpers import hot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def cold(data: Data, monkeypatch: pytest.MonkeyPatch) -> Data:
    """A lake with four spans of two days in two files, two segments not in it."""
    without_spark(monkeypatch)
    data.seal([spans(1, 2)], [spans(3, 4, start_ns=MORNING_NS + DAY_NS)])
    data.seal([logs("a")], topic=LOGS)
    Plain(data).run(batch_segments=1)
    data.seal([spans(5)], [spans(6)])
    return data


def partitions(rows: DataFrame) -> int:
    """How many tasks read."""
    return rows.rdd.getNumPartitions()


def test_every_tier_is_read_once(spark: SparkSession, cold: Data) -> None:
    """Segments that the lake has are still there, and not read."""
    with hot(cold, spans(7), spans(8)):
        found = cold.read(spark, table="spans")
        assert names(found) == named(*range(1, 9))
        assert cold.read(spark, table="logs").count() == 1
        for tiers, expected in {"cold": (1, 2, 3, 4), "warm,hot": (5, 6, 7, 8)}.items():
            assert names(cold.read(spark, table="spans", tiers=tiers)) == named(*expected)


def test_a_span_that_was_sent_again_is_one(spark: SparkSession, cold: Data) -> None:
    """Across the tiers, and within each."""
    cold.seal([spans(1), spans(6), spans(9)], [spans(9)])
    with hot(cold, spans(2), spans(5), spans(10), spans(10)):
        assert names(cold.read(spark, table="spans")) == named(1, 2, 3, 4, 5, 6, 9, 10)


def test_files_are_partitions_and_are_pruned(spark: SparkSession, cold: Data) -> None:
    """By the days that are asked for."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    found = cold.read(spark, table="spans", tiers="cold")
    assert partitions(found) == 2
    late = found.where(f"start_time_unix_nano >= {MORNING_NS + DAY_NS}")
    assert names(late) == named(3, 4)
    times = [row["time"] for row in found.where("name = 'span 3'").select("time").collect()]
    later = found.where(found["time"] >= times[0])
    assert (partitions(later), names(later)) == (1, named(3, 4))


def test_columns_that_are_asked_for_are_read(spark: SparkSession, cold: Data) -> None:
    """In an order of one's own."""
    with hot(cold, spans(7)):
        found = cold.read(spark, "_offset LONG, name STRING", table="spans").orderBy("name")
        assert [tuple(row) for row in found.collect()][-3:] == [
            (2, "span 5"),
            (3, "span 6"),
            (4, "span 7"),
        ]


def test_topics_and_namespaces_choose_rows_of_every_tier(spark: SparkSession, cold: Data) -> None:
    """By full names and by names in every namespace."""
    with hot(cold, spans(7)):
        for chosen in (
            {"topics": "/default/traces"},
            {"topics": "traces"},
            {"namespaces": "default"},
        ):
            assert cold.read(spark, table="spans", **chosen).count() == 7
        for others in ({"topics": "/acme/traces"}, {"namespaces": "acme"}):
            assert cold.read(spark, table="spans", **others).count() == 0
