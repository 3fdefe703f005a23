"""`penstock pipeline run` beside a writer: its driver, its Java and its workers are killed."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.lake.orphans import remove_orphans
from penstock.lake.schemas import TABLES
from tests.lake.helpers import Later
from tests.pipeline.flush.helpers import Sent, assert_exactly_once, lake_files, opened_lake
from tests.pipeline.flush.processes import TARGETS, running, sealed, writing
from tests.pipeline.flush.running import run_once, wait_for
from tests.pipeline.flush.sealing_writer import log_request, trace_request
from tests.pipeline.helpers import LOGS, TRACES

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession


def finish(spark: SparkSession, sent: Sent, writer: subprocess.Popen[str]) -> None:
    """No more is sealed; what is left goes to the lake, which then has everything once."""
    traces, logs = sealed(writer)
    sent.note(map(trace_request, range(traces)), TRACES)
    sent.note(map(log_request, range(logs)), LOGS)
    run_once(spark, sent.data, repeat_window_s=0)
    assert_exactly_once(sent)


@pytest.mark.soak
def test_killed_driver_loses_nothing(spark: SparkSession, sent: Sent, tmp_path: Path) -> None:
    """Its Java and its workers end by themselves; meanwhile segments are sealed and let go."""
    with writing(sent.data.root) as writer:
        with running(sent.data.root, tmp_path) as pipeline:
            wait_for(lambda: pipeline.out or not pipeline.is_running)
            assert pipeline.kill("driver")
            assert pipeline.end() == -9
        wait_for(lambda: not sent.data.segment(0).exists())
        finish(spark, sent, writer)


@pytest.mark.soak
def test_killed_java_loses_nothing(spark: SparkSession, sent: Sent, tmp_path: Path) -> None:
    """The command says in one sentence what has happened."""
    with writing(sent.data.root) as writer:
        with running(sent.data.root, tmp_path) as pipeline:
            wait_for(lambda: pipeline.pids("worker") or not pipeline.is_running)
            assert pipeline.kill("java")
            assert pipeline.end() == 1
        assert pipeline.err.splitlines()[-1].startswith("penstock: Spark's Java process has died")
        finish(spark, sent, writer)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [0])
def test_fifty_kills_lose_nothing(
    spark: SparkSession, sent: Sent, tmp_path: Path, seed: int
) -> None:
    """Of every kind, at random moments; what they leave behind can be cleaned up."""
    random, kills = Random(seed), Counter[str]()
    with writing(sent.data.root) as writer:
        while kills.total() < 50:
            with running(sent.data.root, tmp_path) as pipeline:
                while pipeline.is_running:
                    pipeline.wait_for(random.choice(("java", "worker", "worker", "worker")))
                    time.sleep(random.uniform(0.0, 3.0))
                    target = TARGETS[kills.total() % len(TARGETS)]
                    kills[target] += pipeline.kill(target)
                    if target != "worker":
                        pipeline.end()
        finish(spark, sent, writer)
    check_leftovers(sent)


def check_leftovers(sent: Sent) -> None:
    """After which the lake is the same."""
    with opened_lake(sent.data) as lake:
        for name in TABLES:
            remove_orphans(lake.table(name), clock=Later(hours=2))
    for table in TABLES:
        folder = sent.data.root / "lake" / table / "data"
        found = sorted(str(path) for path in folder.rglob("*") if path.is_file())
        assert found == lake_files(sent.data, table)
    assert_exactly_once(sent)
