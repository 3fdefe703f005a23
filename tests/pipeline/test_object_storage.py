"""The pipeline without local disks: queue and warehouse on a real S3 server, Spark on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.otel import Signal
from penstock.queue import Producer
from penstock.queue.otlp import Origin, encode_origin
from tests.pipeline.cluster import run_command, standalone_cluster
from tests.pipeline.flush.helpers import logs
from tests.pipeline.helpers import LOGS, TRACES, named, spans
from tests.servers.fixtures import s3

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.servers.seaweed import S3Server

__all__ = ["s3"]


@pytest.fixture
def queue_url(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A queue with three batches; the environment says how to reach it."""
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper(), value)
    # The server does not unpack the checksums behind the data of clients that do not sign.
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")
    url = s3.place()
    with Producer.open(url) as producer:
        for batch in range(3):
            producer.produce([spans(2 * batch, 2 * batch + 1)], _said(Signal.TRACES))
            producer.produce([logs(f"log {batch}")], _said(Signal.LOGS))
            producer.flush()
    return url


def _said(signal: Signal) -> bytes:
    return encode_origin(Origin(TRACES if signal is Signal.TRACES else LOGS, signal))


@pytest.mark.timeout(300)
def test_cluster_takes_the_queue_to_a_warehouse_on_s3(
    s3: S3Server,
    queue_url: str,
    tmp_path: Path,
) -> None:
    """Executors fetch batches and write Parquet; a second run finds nothing that is new."""
    lake = {
        "warehouse": s3.place(),
        "catalog": {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "s3.endpoint": s3.endpoint,
            "s3.anonymous": "true",
            "s3.region": "us-east-1",
        },
    }
    config = tmp_path / "penstock.yaml"
    config.write_text(yaml.safe_dump({"lake": lake}))
    with standalone_cluster(tmp_path / "cluster") as cluster:
        where = ("--master", cluster.master, "--data-dir", tmp_path / "notes", "--config", config)
        command = ("pipeline", "run", "--once", "--json", "--queue", queue_url, *where)
        answer = run_command(tmp_path, *command)
        again = run_command(tmp_path, *command)
    assert (answer.code, answer.err) == (0, "")
    assert (answer.json["rows"]["spans"], answer.json["rows"]["logs"]) == (6, 3)
    assert (again.code, again.err, again.out) == (0, "", "")
    settings = LakeSettings(warehouse=str(lake["warehouse"]), catalog=dict(lake["catalog"]))  # type: ignore[arg-type, call-overload] # of one's own
    with Lake.open(settings) as opened:
        rows = opened.table("spans").scan().to_arrow()
        assert sorted(rows["name"].to_pylist()) == named(*range(6))
        assert opened.table("logs").scan().count() == 3


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
