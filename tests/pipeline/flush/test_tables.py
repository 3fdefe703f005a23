"""What was sent is in the tables as it was sent, whoever reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.lake.schemas import TABLES
from penstock.model import Topic
from penstock.otel import Signal
from penstock.pipeline.flush.progress import read_progress
from tests.otel.samples import encoded, full_request
from tests.pipeline.flush.helpers import Sent, assert_exactly_once, digests, lake_files
from tests.pipeline.flush.running import (
    duckdb_rows,
    polars_rows,
    pyiceberg_rows,
    run_once,
    without_null_lists,
)
from tests.pipeline.helpers import Data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = 12
METRIC_KINDS = {"gauge", "sum", "histogram", "exponential_histogram", "summary"}


def requests(signal: Signal, seeds: range) -> list[bytes]:
    """With something in every field."""
    return [encoded(full_request(signal, seed)) for seed in seeds]


@pytest.fixture(scope="module")
def flushed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sent:
    """All signals, of two namespaces and in two partitions, in one run."""
    sent = Sent(Data(tmp_path_factory.mktemp("tables") / "data"))
    for signal in Signal:
        sent.seal(
            requests(signal, range(SEEDS // 2)),
            requests(signal, range(SEEDS // 2, SEEDS)),
            topic=Topic("default", signal.value),
        )
        seeds = range(SEEDS, SEEDS + 3)
        sent.seal(requests(signal, seeds), topic=Topic("acme", signal.value), partition=1)
    run_once(spark, sent.data)
    return sent


def test_rows_are_those_that_were_sent(flushed: Sent) -> None:
    """Ids, nanoseconds, nested attributes, every column; what was there before is untouched."""
    assert_exactly_once(flushed)


def test_every_metric_kind_is_there(flushed: Sent) -> None:
    """Each with its own columns."""
    found = {row["type"] for row in duckdb_rows(flushed.data, "metrics")}
    assert found == METRIC_KINDS


@pytest.mark.parametrize("table", TABLES)
def test_every_engine_reads_the_same(flushed: Sent, table: str) -> None:
    """Plain DuckDB, Polars and pyiceberg."""
    wanted = flushed.rows(table)
    assert digests(duckdb_rows(flushed.data, table)) == digests(wanted)
    assert digests(polars_rows(flushed.data, table)) == digests(wanted)
    found = map(without_null_lists, pyiceberg_rows(flushed.data, table))
    assert digests(found) == digests(map(without_null_lists, wanted))


def test_progress_says_what_was_done(flushed: Sent) -> None:
    """Rows of each table, segments, and that nothing was at fault or sent again."""
    found = read_progress(flushed.data.root)
    assert found is not None
    [batch] = found["recent"]
    assert batch["rows"] == {table: len(flushed.rows(table)) for table in TABLES}
    assert (batch["segments"], batch["repeated"], batch["faults"]) == (9, 0, [])
    assert batch["files"] == sum(len(lake_files(flushed.data, table)) for table in TABLES)
