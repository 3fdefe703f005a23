"""The cold flush on Spark: its stream, its claim on the lake, what it does with faults."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException

from penstock.lake.settings import LakeSettings
from penstock.model import Topic
from penstock.model.errors import PenstockError
from penstock.pipeline.flush import batch
from penstock.pipeline.flush.progress import read_progress
from penstock.pipeline.flush.settings import FlushSettings
from penstock.pipeline.flush.stream import claimed, java_lives, only_pipeline
from penstock.store.outside import read_delivered
from tests.pipeline.flush.helpers import Sent, assert_exactly_once, names_in, positions
from tests.pipeline.flush.running import run_once, start, wait_for
from tests.pipeline.helpers import Data, named, spans
from tests.store.helpers import flip

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def batches(data: Data) -> list[dict[str, Any]]:
    """Those that were finished, the last of them last."""
    found: list[dict[str, Any]] = (read_progress(data.root) or {}).get("recent", [])
    return found


def test_segments_go_to_the_lake_once(spark: SparkSession, sent: Sent) -> None:
    """In batches of the size that is wanted; a second run finds nothing, a third what is new."""
    sent.seal([spans(1)])
    sent.seal([spans(2)], topic=Topic("acme", "traces"), partition=3)
    run_once(spark, sent.data, batch_bytes=1)
    assert [each["segments"] for each in batches(sent.data)] == [1, 1]
    run_once(spark, sent.data)
    assert len(batches(sent.data)) == 2
    sent.seal([spans(3)])
    run_once(spark, sent.data)
    assert_exactly_once(sent)
    assert batches(sent.data)[-1]["rows"] == {"spans": 1}
    delivered = read_delivered(sent.data.root)
    assert delivered is not None
    taken = {key: each[:2] for key, each in delivered.through.items()}
    assert taken == {"/acme/traces/3": (0, 1), "/default/traces/0": (1, 2)}


def test_faults_and_repeats_do_not_stop_the_stream(spark: SparkSession, data: Data) -> None:
    """Damage is set aside, what was sent again is written once: in a batch, later, and after."""
    data.seal([spans(1, 2, 2)], [spans(9)], [spans(2, 3)])
    flip(data.segment(1), -20)
    run_once(spark, data)
    data.seal([spans(3, 4)])
    run_once(spark, data)
    assert names_in(data) == named(1, 2, 3, 4)
    first, second = batches(data)
    assert (first["repeated"], second["repeated"]) == (2, 1)
    assert [str(data.segment(1)) in fault for fault in first["faults"]] == [True]
    assert len([*(data.root / "pipeline/aside").iterdir()]) == 1


def test_lake_decides_and_not_an_earlier_run(spark: SparkSession, sent: Sent) -> None:
    """A lake that is gone gets everything again; nothing of an earlier run is beside the data."""
    sent.seal([spans(1)], [spans(2)])
    (sent.data.root / "pipeline/checkpoints/of 0.1").mkdir(parents=True)
    run_once(spark, sent.data)
    shutil.rmtree(sent.data.root / "lake")
    run_once(spark, sent.data)
    assert_exactly_once(sent)
    assert not (sent.data.root / "pipeline/checkpoints").exists()


def test_batch_waits_for_its_size(spark: SparkSession, data: Data) -> None:
    """Small segments wait for each other."""
    data.seal([spans(1)])
    query = start(spark, data, flush_max_bytes=data.segment(0).stat().st_size + 1)
    try:
        wait_for(lambda: query.status["message"].startswith("Waiting"))
        data.seal([spans(2)])
        wait_for(lambda: batches(data))
    finally:
        query.stop()
    assert [each["segments"] for each in batches(data)] == [2]


def test_batch_waits_no_longer_than_its_age(spark: SparkSession, data: Data) -> None:
    """However little there is."""
    data.seal([spans(1)])
    query = start(spark, data, flush_max_bytes=10**12, flush_max_age_s=0.0)
    try:
        wait_for(lambda: batches(data))
    finally:
        query.stop()
    assert names_in(data) == named(1)


def test_second_pipeline_is_refused(data: Data) -> None:
    """On one machine the lock says so, before anything is done."""
    with only_pipeline(data.root):
        reason = f"another pipeline works on {data.root}"
        with pytest.raises(PenstockError, match=reason), only_pipeline(data.root):
            raise AssertionError("both work")
    with only_pipeline(data.root):
        pass


@pytest.mark.parametrize("error", [ConnectionRefusedError(), Py4JNetworkError("gone")])
def test_dead_java_is_one_sentence(error: Exception) -> None:
    """Whatever the call was that found nobody there."""
    with pytest.raises(PenstockError, match="Java process has died"), java_lives():
        raise error


def test_pipeline_that_lost_its_claim_is_fenced(spark: SparkSession, sent: Sent) -> None:
    """It ends with that, and nothing of its batch is in the lake, nor acknowledged."""
    sent.seal([spans(1)])
    query = start(spark, sent.data, flush_max_bytes=1)
    try:
        wait_for(lambda: batches(sent.data))
        claimed(sent.data.root, LakeSettings.of(sent.data.root), FlushSettings())
        before = positions(sent.data), read_delivered(sent.data.root)
        sent.data.seal([spans(2)])
        with pytest.raises(StreamingQueryException, match="belongs to writer 2, this is 1"):
            query.awaitTermination()
    finally:
        query.stop()
    assert (positions(sent.data), read_delivered(sent.data.root)) == before
    assert_exactly_once(sent)


def test_killed_worker_loses_nothing(
    spark: SparkSession, sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are there, uncommitted; the next run does the batch from the beginning."""
    sent.seal([spans(1, 2)], [spans(3)])
    inner, killed = batch._write_group, tmp_path / "killed"

    def dies(order: Any) -> Any:
        written = inner(order)
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
        return written

    with monkeypatch.context() as patch:
        patch.setattr(batch, "_write_group", dies)
        with pytest.raises(StreamingQueryException):
            run_once(spark, sent.data)
    assert killed.exists()
    assert names_in(sent.data) == []
    assert read_delivered(sent.data.root).through == {}  # type: ignore[union-attr] # it is there
    run_once(spark, sent.data, repeat_window_s=0)
    assert_exactly_once(sent)
