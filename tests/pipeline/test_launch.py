"""The settings and the environment that Spark's Java starts with."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

import penstock
from penstock.pipeline import launch

PACKAGE_FOLDER = str(Path(penstock.__file__).parents[1])


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[4,2]", 4),
        ("local[*]", os.cpu_count()),
        ("local[*,3]", os.cpu_count()),
    ],
)
def test_local_shuffles_have_a_partition_for_each_core(master: str, cores: int) -> None:
    """Spark's 200 cost more than what is in them."""
    assert launch._defaults(master)["spark.sql.shuffle.partitions"] == str(cores)


def test_cluster_decides_on_its_own_shuffles() -> None:
    """And is reached by the address that this machine has there."""
    chosen = launch._defaults("spark://cluster:7077")
    assert "spark.sql.shuffle.partitions" not in chosen
    assert "spark.driver.host" not in chosen
    assert "SPARK_LOCAL_IP" not in launch._variables("spark://cluster:7077")


@pytest.mark.parametrize("master", ["local[2]", "spark://127.0.0.1:7077", "spark://localhost:1"])
def test_what_runs_here_stays_on_loopback(master: str) -> None:
    """Nobody else can reach a session's ports."""
    assert launch._defaults(master)["spark.driver.bindAddress"] == "127.0.0.1"
    assert launch._variables(master)["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_settings_of_the_caller_win(tmp_path: Path) -> None:
    """All but Java's options, to which theirs are added."""
    settings = {"spark.driver.memory": "7g", "spark.driver.extraJavaOptions": "-Xss4m"}
    conf = launch._conf("local[1]", "test", settings, tmp_path)
    assert conf.get("spark.driver.memory") == "7g"
    options = conf.get("spark.driver.extraJavaOptions") or ""
    assert options.endswith(" -Xss4m")
    assert f"log4j2.configurationFile=file://{tmp_path}" in options


def test_workers_get_this_interpreter_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a cluster it may be somewhere else."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert launch._variables("local")["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert launch._variables("local")["PYSPARK_PYTHON"] == "/opt/python"


@pytest.mark.parametrize("before", ["", "/a:/b", f"/a:{PACKAGE_FOLDER}:/b"])
def test_workers_find_this_package_first(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And then whatever this process was told."""
    monkeypatch.setenv("PYTHONPATH", before)
    found = launch._variables("local")["PYTHONPATH"].split(":")
    assert found == [PACKAGE_FOLDER, *(["/a", "/b"] if before else [])]


def test_environment_is_restored_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that were there, and those that were not."""
    monkeypatch.setenv("JAVA_HOME", "/mine")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with (
        contextlib.suppress(RuntimeError),
        launch._environment({"JAVA_HOME": "/other", "SPARK_LOCAL_IP": "127.0.0.1"}),
    ):
        assert os.environ["JAVA_HOME"] == "/other"
        raise RuntimeError
    assert os.environ["JAVA_HOME"] == "/mine"
    assert "SPARK_LOCAL_IP" not in os.environ
