"""What waits in a queue is a source of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.otel import Signal
from penstock.queue import Producer
from penstock.queue.otlp import Origin, encode_origin
from tests.pipeline.flush.helpers import logs
from tests.pipeline.helpers import LOGS, TRACES, named, spans
from tests.servers.fixtures import s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.seaweed import S3Server

__all__ = ["s3"]


@pytest.fixture
def queue_url(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A queue with three batches; the environment says how to reach it."""
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper(), value)
    url = s3.place()
    with Producer.open(url, options=s3.options) as producer:
        for batch in range(3):
            producer.produce([spans(2 * batch, 2 * batch + 1)], _said(Signal.TRACES))
            producer.produce([logs(f"log {batch}")], _said(Signal.LOGS))
            producer.flush()
    return url


def _said(signal: Signal) -> bytes:
    return encode_origin(Origin(TRACES if signal is Signal.TRACES else LOGS, signal))


def test_queue_is_a_source_of_spark(
    spark: SparkSession,
    s3: S3Server,
    queue_url: str,
) -> None:
    """Rows of a table, with some of its columns; nobody is fenced and nothing dequeued."""
    keys = {f"objects.{name}": value for name, value in s3.options.items()}
    reader = spark.read.format("penstock").options(source="queue", **keys)
    for _ in range(2):
        rows = reader.schema("name STRING, _offset LONG").load(queue_url)
        found = rows.where("_offset >= 16777216").collect()
        assert sorted(row["name"] for row in found) == named(2, 3, 4, 5)
    assert reader.option("table", "logs").schema("body STRING").load(queue_url).count() == 3
