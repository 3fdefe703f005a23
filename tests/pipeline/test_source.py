"""`spark.read.format("penstock")`: the rows of sealed segments."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from penstock.lake.schemas import TABLES, signal_of
from penstock.model import Topic
from penstock.pipeline.filters import Predicate
from penstock.pipeline.reading import TableReading
from penstock.tiers.segments import DirectorySegments
from tests.otel.samples import encoded, full_request
from tests.pipeline.helpers import DAY_NS, Data, named, names, spans, trace_id
from tests.store.helpers import flip

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "name string, service_name string, _offset bigint"


def failure(rows: DataFrame) -> str:
    """What reading says that must fail."""
    with pytest.raises(PySparkException) as caught:
        rows.collect()
    return str(caught.value)


def partitions(rows: DataFrame) -> int:
    """How many tasks read."""
    return rows.rdd.getNumPartitions()


def test_every_sealed_span_is_a_row(spark: SparkSession, data: Data) -> None:
    """Of all segments and partitions, with where it came from."""
    data.seal([spans(1, 2), spans(3)], [spans(4)])
    data.seal([spans(5)], partition=1)
    found = data.read(spark, table="spans")
    assert names(found) == named(1, 2, 3, 4, 5)
    origin = found.select("_topic", "_topic_partition", "_offset").orderBy("start_time_unix_nano")
    places = [(0, 0), (0, 0), (0, 1), (0, 2), (1, 0)]
    assert [tuple(row) for row in origin.collect()] == [("/default/traces", *p) for p in places]


@pytest.mark.parametrize("table", TABLES)
def test_values_reach_spark_unchanged(table: str, spark: SparkSession, data: Data) -> None:
    """Something in every field: ids, nanoseconds, nested attributes, every kind of metric."""
    signal = signal_of(table)
    requests = [encoded(full_request(signal, seed)) for seed in range(6)]
    data.seal(requests, topic=Topic("default", signal.value))
    schema, segments = TABLES[table], DirectorySegments(data.root)
    way = TableReading(segments, table, schema, Predicate(schema), fail_on_data_loss=True)
    expected = pa.Table.from_batches(way.read(segments.since({})), schema)
    found = data.read(spark, table=table).toArrow()
    assert found.schema.names == schema.names
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


def test_directory_without_segments_has_no_rows(spark: SparkSession, data: Data) -> None:
    """And all columns."""
    found = data.read(spark, table="logs")
    assert found.columns == TABLES["logs"].names
    assert found.collect() == []


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("service_name = 'bank'", [3]),
        ("service_name in ('bank', 'mill')", [3, 30]),
        ("_offset = 1", [3]),
        ("_topic_partition = 1", [30]),
        ("namespace = 'nobody'", []),
        ("date = '2026-01-02'", [20]),
        ("time >= '2026-01-01T10:00:00Z' and time < '2026-01-01T12:00:00Z'", [2, 3]),
        ("date > '2026-01-02'", [30]),
        ("service_name is null", []),
        ("name like 'span 3%' and attributes['number'] = '3'", [3]),
        ("not service_name = 'shop' and duration_ns = 5", [3, 30]),
        (f"trace_id = '{trace_id(2).hex()}'", [2]),
    ],
)
def test_filters_choose_the_same_rows_as_spark(
    where: str, expected: list[int], spark: SparkSession, shared: Data
) -> None:
    """Pushed down or not."""
    assert names(shared.read(spark).where(where)) == named(*expected)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Spans 1, 2 and 3, then 20, in one partition, and 30 of two days later in another."""
    data = Data(tmp_path_factory.mktemp("shared") / "data")
    data.seal([spans(1, 2), spans(3, service="bank")], [spans(20)])
    data.seal([spans(30, service="mill", start_ns=1_767_254_400_000_000_000 + DAY_NS)], partition=1)
    return data


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("true", 3),
        ("_topic_partition = 1", 1),
        ("_offset >= 2", 1),
        ("_topic = '/default/traces'", 3),
        ("date = '2026-01-02'", 1),
        ("time < '2026-01-02T00:00:00Z'", 1),
    ],
)
def test_segments_that_cannot_match_are_not_planned(
    where: str, expected: int, spark: SparkSession, shared: Data
) -> None:
    """By where they come from, and when their events were."""
    assert partitions(shared.read(spark, partitionBytes=1).where(where)) == expected


def test_small_segments_share_a_task(spark: SparkSession, shared: Data) -> None:
    """By default; a task each costs more than reading them."""
    assert partitions(shared.read(spark)) == 1


def test_schema_spares_columns(spark: SparkSession, shared: Data) -> None:
    """In the order that was asked for."""
    found = shared.read(spark, schema=COLUMNS).where("service_name = 'bank'")
    assert [tuple(row) for row in found.collect()] == [("span 3", "bank", 1)]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [("nmae string", "no column nmae"), ("time string", "column time is timestamp")],
)
def test_schema_that_the_table_does_not_have_is_refused(
    schema: str, reason: str, spark: SparkSession, shared: Data
) -> None:
    """With the column's name."""
    assert reason in failure(shared.read(spark, schema=schema))


def test_descriptors_are_a_row_for_each_segment(spark: SparkSession, shared: Data) -> None:
    """With what is needed to read it elsewhere."""
    rows = shared.read(spark, rows="descriptors").orderBy("partition", "segment_seq").collect()
    found = [(r.partition, r.segment_seq, r.first_offset, r.end_offset, r["items"]) for r in rows]
    assert found == [(0, 0, 0, 2, 3), (0, 1, 2, 3, 1), (1, 0, 0, 1, 1)]
    assert {(r.topic, r.namespace, r.signal, r.state) for r in rows} == {
        ("/default/traces", "default", "traces", "sealed")
    }
    assert [r.path for r in rows[:2]] == [str(shared.segment(0)), str(shared.segment(1))]
    assert rows[0].bytes == shared.segment(0).stat().st_size
    assert rows[0].sealed_at <= dt.datetime.now()


def test_damage_is_named_in_the_error(spark: SparkSession, data: Data) -> None:
    """Or passed over where that is wanted."""
    data.seal([spans(1)], [spans(2)])
    path = data.segment(1)
    flip(path, path.read_bytes().index(b"span 2"))
    assert re.search(rf"{path}: bundle 0: .*chunk 0 of stream", failure(data.read(spark)))
    assert names(data.read(spark, failOnDataLoss="false")) == named(1)


def test_wrong_option_is_refused_by_name(spark: SparkSession, data: Data) -> None:
    """Before anything is read."""
    with pytest.raises(PySparkException, match="spams"):
        data.read(spark, table="spams")


def test_path_without_a_data_directory_is_refused(spark: SparkSession, data: Data) -> None:
    """Else a typing mistake would read as no rows."""
    data.root /= "elsewhere"
    (data.root / "penstock.json").unlink(missing_ok=True)
    reader: Any = spark.read.format("penstock")
    assert "is not a data directory" in failure(reader.load(str(data.root)))


def test_format_is_known_without_registering_it() -> None:
    """Spark imports the module of that name by itself."""
    code = "import pyspark_penstock as m; print(m.DefaultSource.name())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "penstock\n"
