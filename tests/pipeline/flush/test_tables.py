"""What was sent is in the tables as it was sent, whoever reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.lake.schemas import TABLES, table_of
from penstock.model import Topic
from penstock.otel import Signal
from penstock.pipeline.flush.progress import read_progress
from tests.otel.samples import encoded, full_request
from tests.pipeline.flush.helpers import Sent, assert_exactly_once, digests
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
    """All signals, two namespaces, two partitions, flushed once, and again with more."""
    sent = Sent(Data(tmp_path_factory.mktemp("tables") / "data"))
    for signal in Signal:
        sent.seal(
            requests(signal, range(SEEDS // 2)),
            requests(signal, range(SEEDS // 2, SEEDS)),
            topic=Topic("default", signal.value),
        )
    run_once(spark, sent.data)
    for signal in Signal:
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


def test_each_run_took_what_was_new(flushed: Sent) -> None:
    """Two batches, and what each of them did."""
    found = read_progress(flushed.data.root)
    assert found is not None
    assert [batch["segments"] for batch in found["recent"]] == [6, 3]
    rows = {table_of(signal): len(flushed.rows(table_of(signal))) for signal in Signal}
    both = [batch["rows"] for batch in found["recent"]]
    assert {table: both[0][table] + both[1][table] for table in TABLES} == rows
    assert (found["faults"], found["repeated"]) == (0, 0)
