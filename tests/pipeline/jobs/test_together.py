"""All jobs and the flush, in any order: the rows stay, and the sums are theirs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from penstock.model.errors import FilesReplaced
from penstock.pipeline.jobs.compact import commit_day, compact, plan_day, write_day
from penstock.pipeline.jobs.expire import expire
from penstock.pipeline.jobs.rollup import rollup
from penstock.pipeline.jobs.settings import CompactSettings, ExpireSettings
from tests.lake.helpers import DAY, Flush
from tests.pipeline.jobs import oracle
from tests.pipeline.jobs.helpers import as_table
from tests.pipeline.jobs.test_rollup import by, rows_of, shuffled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake.tables import Lake
    from tests.pipeline.jobs.helpers import Row

IMPATIENT = ExpireSettings(snapshots_s=0.0, orphan_grace_s=0.0)


class Steps:
    """Things that happen to a lake."""

    def __init__(self, spark: SparkSession, lake: Lake, chance: random.Random) -> None:
        self.spark, self.lake, self.chance = spark, lake, chance
        self.table = lake.table("spans")
        self.flusher = Flush(self.table)

    def flush(self, rows: list[Row]) -> None:
        """More rows."""
        self.flusher.flush(as_table("spans", rows))

    def compact(self) -> None:
        """With as much memory as there happens to be."""
        memory = self.chance.choice([6_000_000, 200_000_000])
        settings = CompactSettings(min_files=2, memory_bytes=memory)
        assert all(each.problem is None for each in compact(self.spark, self.lake, settings))

    def compact_late(self) -> None:
        """Planned and written before another compaction, committed after it."""
        settings = CompactSettings(min_files=2)
        plan = plan_day(self.spark, "spans", self.lake.table("spans"), DAY, settings)
        if plan is not None:
            written = write_day(self.spark, plan)
            self.compact()
            with pytest.raises(FilesReplaced):
                commit_day(self.lake.table("spans"), plan, written)

    def rollup(self) -> None:
        """All of them."""
        assert all(each.problem is None for each in rollup(self.spark, self.lake))

    def expire(self) -> None:
        """Snapshots and orphans, at once."""
        assert all(each.problem is None for each in expire(self.lake, IMPATIENT))

    def any(self) -> None:
        """One of them."""
        self.chance.choice([self.compact, self.compact_late, self.rollup, self.expire])()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_jobs_in_any_order_keep_rows_and_sums(spark: SparkSession, lake: Lake, seed: int) -> None:
    """Every span is there once, and the rollups are those of a slow count."""
    spans = oracle.busy_days(seed, count=80)
    steps = Steps(spark, lake, random.Random(seed))
    for rows in shuffled(spans, 8):
        steps.flush(rows)
        steps.any()
    steps.compact()
    steps.rollup()
    steps.expire()
    found = lake.table("spans").scan(selected_fields=("trace_id", "span_id")).to_arrow()
    keys = sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))
    assert keys == sorted((row["trace_id"], row["span_id"]) for row in spans)
    assert by(rows_of(lake, "traces"), "namespace", "trace_id") == oracle.traces(spans)
    edges = by(rows_of(lake, "service_edges_1h"), "time", "namespace", "caller", "callee")
    assert {key: (row["calls"], row["errors"]) for key, row in edges.items()} == oracle.edges(spans)
