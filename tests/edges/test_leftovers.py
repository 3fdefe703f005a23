"""What killed processes leave in the temporary folder, the next one removes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from penstock.otel import Signal
from tests.edges.hooks import hooked
from tests.patience import until
from tests.pipeline.cluster import run_command, start_command
from tests.server.running import children_of, is_alive, serving
from tests.server.samples import traces

FOREVER = "SELECT max(sin(a.i * b.i)) FROM range(4000000) a(i), range(4000000) b(i)"
_HANGING = """
import time
from pathlib import Path

def finish(self):
    Path(MARK).touch()
    time.sleep(600)

module.DataFileWriter.finish = finish
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a sealed span; nobody serves it."""
    data = tmp_path_factory.mktemp("edge") / "data"
    with serving(data) as server:
        assert server.post(Signal.TRACES, traces("one")).status == 200
        assert server.stop() == 0
    return data


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """The temporary folder of all commands of a test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@contextlib.contextmanager
def killed(process: Popen[str]) -> Iterator[list[int]]:
    """Kills it and all that it has started, at once, at the end of the block."""
    yield []
    found = [process.pid]
    for pid in found:
        found += children_of(pid)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    until(lambda: not any(map(is_alive, found)))


def files_in(folder: Path) -> list[Path]:
    """All that is not a folder for the folders of one user."""
    return sorted(path for path in folder.glob("*/*"))


@pytest.mark.away
def test_next_pipeline_removes_what_a_killed_one_has_left(
    data: Path, temporary: Path, tmp_path: Path
) -> None:
    """Spark's blocks, its files and ours; those of a pipeline that lives stay."""
    mark, run = tmp_path / "mark", ("pipeline", "run", "--once", "--data-dir", data)
    hook = hooked(tmp_path / "hook", "penstock.lake.writer", f"MARK = {str(mark)!r}\n{_HANGING}")
    with start_command(tmp_path, *run, TMPDIR=str(temporary), **hook) as process:
        until(mark.exists)
        with killed(process):
            used = [*temporary.glob("*/spark-*/tmp/*")]
            assert any(path.name.startswith("blockmgr-") for path in used), used
            beside = ("query", "--data-dir", data, "SELECT 1")
            assert run_command(tmp_path, *beside, TMPDIR=str(temporary)).code == 0
            assert [*temporary.glob("*/spark-*/tmp/*")] == used
    assert files_in(temporary) != []
    assert run_command(tmp_path, *run, TMPDIR=str(temporary)).code == 0
    assert files_in(temporary) == []
    assert len([*temporary.iterdir()]) == 1, "something else is left there"


def test_next_query_removes_what_a_killed_one_has_left(
    data: Path, temporary: Path, tmp_path: Path
) -> None:
    """And so does a server, before it is ready."""
    query = ("query", "--data-dir", data)
    for then in ("query", "server"):
        with start_command(tmp_path, *query, FOREVER, TMPDIR=str(temporary)) as process:
            until(lambda: bool([*temporary.glob("*/query-*.lock")]))
            with killed(process):
                pass
        assert files_in(temporary) != []
        if then == "query":
            answer = run_command(tmp_path, *query, "SELECT 1", TMPDIR=str(temporary))
            assert answer.code == 0, answer.err
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TMPDIR", str(temporary))
                with serving(tmp_path / "other") as server:
                    assert server.get("/readyz").status == 200
                    assert files_in(temporary) == []
                    assert server.stop() == 0
        assert files_in(temporary) == []
