"""Sessions: their settings, that there is one of them, and what they leave behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import penstock
from penstock.model.errors import InvalidArgument, PenstockError
from penstock.pipeline import launch, spark_session
from tests.pipeline.conftest import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROGRAM = """
import json, os, sys
from penstock.pipeline import spark_session, stop_session

def fails(query):
    try:
        spark.sql(query).collect()
    except Exception as error:
        return type(error).__name__

before = dict(os.environ)
spark = spark_session("local[1]", settings=json.loads(sys.argv[1]))
answers = {
    "settings": dict(spark.sparkContext.getConf().getAll()),
    "changed": [name for name in os.environ if os.environ[name] != before.get(name)],
    "raised": fails("select raise_error('no')"),
}
spark.sql("create database shop")
log = spark._jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.storage.Disk")
log.warn("nobody needs to know")
log.error("the disk is on fire")
java = spark.sparkContext._gateway.proc
stop_session(spark)
stop_session(spark)
answers["ended"] = java.poll()
print(json.dumps(answers))
"""
_KILLING = """
import json, sys
from penstock.pipeline import spark_session
settings = json.loads(sys.argv[1])
spark = spark_session("local[1]", settings=settings)
spark.sparkContext._gateway.proc.kill()
spark.sparkContext._gateway.proc.wait()
print(spark_session("local[2]", settings=settings).range(3).count())
"""


def run_program(
    program: str, folder: Path, scratch: Path, warnings: str = "error"
) -> subprocess.CompletedProcess[str]:
    """Runs it in the folder; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-W", warnings, "-c", program, json.dumps(QUICK_JAVA)],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


class Run(NamedTuple):
    """What a program did."""

    answers: dict[str, Any]
    stderr: str
    left_behind: list[str]
    scratch: list[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A program that starts a session, uses it and stops it, twice."""
    folder, scratch = tmp_path_factory.mktemp("folder"), tmp_path_factory.mktemp("scratch")
    done = run_program(_PROGRAM, folder, scratch)
    left = [path.name for path in folder.iterdir()]
    return Run(json.loads(done.stdout), done.stderr, left, left_in(scratch))


def left_in(folder: Path) -> list[str]:
    """All but the place where the temporary folders of a user come and go."""
    return [path.name for path in folder.rglob("*") if path.name != f"penstock-{os.getuid()}"]


def test_terminal_shows_errors_and_nothing_else(run: Run) -> None:
    """What a query raises is not printed as well; stdout is the program's own."""
    assert run.answers["raised"] == "SparkRuntimeException"
    assert run.stderr == "spark: ERROR Disk: the disk is on fire\n"


def test_session_leaves_no_files_behind(run: Run) -> None:
    """No warehouse and no metastore in the current folder, and nothing of ours elsewhere."""
    assert run.left_behind == []
    assert run.scratch == []


def test_environment_is_as_it_was(run: Run) -> None:
    """What Spark's Java needs is not forced on other programs that this one starts."""
    own_of_pyspark = {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}
    assert {*run.answers["changed"]} <= own_of_pyspark


def test_java_ends_with_its_session(run: Run) -> None:
    """However often it is stopped."""
    assert run.answers["ended"] is not None


@pytest.mark.soak
def test_session_whose_java_was_killed_is_none(tmp_path: Path) -> None:
    """The next one is new, and may have another master; it may be left running, too."""
    done = run_program(_KILLING, tmp_path, tmp_path)
    assert (done.stdout, done.stderr) == ("3\n", "")
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"),
        ("spark.sql.python.filterPushdown.enabled", "true"),
        ("spark.sql.shuffle.partitions", "1"),
        ("spark.driver.memory", launch.DRIVER_MEMORY),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
    ],
)
def test_settings_that_the_pipeline_relies_on(name: str, value: str, run: Run) -> None:
    """Each is set without being asked for."""
    assert run.answers["settings"][name] == value


def test_session_of_the_same_master_is_given_again(spark: SparkSession) -> None:
    """With those of the settings that a running session takes."""
    settings = {"spark.sql.shuffle.partitions": "5", "spark.driver.memory": "3g"}
    try:
        assert spark_session("local[2]", settings=settings) is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "5"
        assert spark.conf.get("spark.driver.memory") == launch.DRIVER_MEMORY
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.mark.usefixtures("spark")
def test_second_master_is_refused() -> None:
    """Spark itself would give the running session, and say nothing."""
    with pytest.raises(InvalidArgument, match=r"runs on local\[2\]; stop it to start one on"):
        spark_session("local[1]")


def test_workers_import_this_very_package(spark: SparkSession) -> None:
    """They are other processes, started by Java."""

    def where(_: Any) -> Iterator[Any]:
        import penstock

        yield penstock.__file__

    [found] = spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()
    assert Path(found) == Path(penstock.__file__)


def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    """And not whichever python3 comes first on PATH."""
    rows = spark.sparkContext.parallelize([0], 1)
    assert rows.map(lambda _: __import__("sys").prefix).collect() == [sys.prefix]


@pytest.mark.parametrize("address", ["spark://here:7077", "local[2]", ""])
def test_remote_that_is_no_address_is_refused(address: str) -> None:
    """Before anything is started."""
    with pytest.raises(InvalidArgument, match="not an address of Spark Connect"):
        spark_session(remote=address or " ")


def test_remote_that_does_not_answer_is_one_sentence() -> None:
    """At once: Spark itself would try for minutes."""
    with pytest.raises(PenstockError, match=r"sc://127.0.0.1:1 cannot be used: .*refused"):
        spark_session(remote="sc://127.0.0.1:1")


_FAILING = """
from penstock.model.errors import PenstockError
from penstock.pipeline import spark_session
try:
    spark_session("local[1]", settings={"spark.driver.extraJavaOptions": "-agentlib:nosuch"})
except PenstockError as error:
    print(error)
"""


def test_start_that_fails_says_why(tmp_path: Path) -> None:
    """In one sentence, with what Java said, which is not shown besides."""
    done = run_program(_FAILING, tmp_path, tmp_path, "ignore")  # pyspark leaves a pipe open
    assert re.fullmatch(r"Spark does not start: .*nosuch.*\n", done.stdout)
    assert done.stderr == ""
    assert left_in(tmp_path) == []
