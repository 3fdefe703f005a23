"""Rows that clients send again are in the lake once: minutes later, after a kill, all signals."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from pyiceberg.catalog import load_catalog

from penstock.otel import Signal
from tests.cli.running import Answer, run
from tests.edges.hooks import hooked
from tests.pipeline.cluster import run_command
from tests.server.running import serving
from tests.server.samples import traces

pytestmark = pytest.mark.away
NOON_NS = 1_767_268_800 * 10**9
_LATER = """
inner = module.SystemClock.wall_ns
module.SystemClock.wall_ns = lambda self: inner(self) + MINUTES * 60 * 10**9
"""
_KILLED_AFTER_ITS_COMMITS = """
import itertools, os, signal
calls = itertools.count(1)

def keep(*_):
    if next(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

module.RepeatWindow.keep = keep
"""


def names(first: int, last: int) -> list[str]:
    """Of that many records."""
    return [f"record {number}" for number in range(first, last + 1)]


def logs(*bodies: str) -> bytes:
    """Records with a time of their own."""
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for body in bodies:
        records.add(time_unix_nano=NOON_NS).body.string_value = body
    return request.SerializeToString()


def metrics(*given: str) -> bytes:
    """Points with a time of their own."""
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for name in given:
        scope.metrics.add(name=name).gauge.data_points.add(time_unix_nano=NOON_NS, as_int=1)
    return request.SerializeToString()


class Edge:
    """A data directory, used by commands and ports alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.data = folder / "data"

    def send(self, first: int, last: int, *, minutes: int) -> None:
        """To a server whose clock is so far ahead; stored and sealed."""
        code = f"MINUTES = {minutes}\n{_LATER}"
        hook = hooked(self._folder / f"clock-{minutes}", "penstock.model.clock", code)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in hook.items():
                patch.setenv(name, value)
            with serving(self.data) as server:
                makers = {Signal.TRACES: traces, Signal.LOGS: logs, Signal.METRICS: metrics}
                for signal, make in makers.items():
                    assert server.post(signal, make(*names(first, last))).status == 200
                assert server.stop() == 0

    def flush(self, **variables: str) -> Answer:
        """`penstock pipeline run --once`."""
        where = ("--once", "--json", "--data-dir", self.data)
        return run_command(self._folder, "pipeline", "run", *where, **variables)

    def flush_and_be_killed(self) -> None:
        """When the rows of all three tables are committed, before anything that follows.

        The command is over when nothing holds its output any more: Spark's Java and its workers
        end with it.
        """
        module = "penstock.pipeline.flush.repeat_window"
        hook = hooked(self._folder / "kill", module, _KILLED_AFTER_ITS_COMMITS)
        answer = self.flush(**hook)
        assert answer.code == -9, answer.err

    def rows(self, table: str, column: str) -> list[str]:
        """What the table has, as another reader of Iceberg finds it."""
        uri = f"sqlite:///{self.data}/lake/catalog.db"
        with load_catalog("penstock", type="sql", uri=uri) as catalog:
            found = catalog.load_table(f"otel.{table}").scan().to_arrow()
        return sorted(found[column].to_pylist())

    def all_rows(self) -> list[list[str]]:
        """Of every table."""
        pairs = (("spans", "name"), ("logs", "body"), ("metrics", "name"))
        return [self.rows(*pair) for pair in pairs]


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Edge:
    """A pipeline has committed 20 records of each signal, and was killed.

    Nine minutes later ten of them came again, in one request with ten others. The next pipeline has
    taken those.
    """
    edge = Edge(tmp_path_factory.mktemp("edge"))
    edge.send(1, 20, minutes=0)
    edge.flush_and_be_killed()
    assert edge.all_rows() == [sorted(names(1, 20))] * 3, "it was killed before its commits"
    edge.send(11, 30, minutes=9)
    answer = edge.flush()
    assert answer.code == 0, answer.err
    assert answer.json["repeated"] == 30, answer.out
    return edge


def test_rows_that_are_sent_again_after_a_kill_are_in_the_lake_once(edge: Edge) -> None:
    """Spans, log records and points of metrics."""
    assert edge.all_rows() == [sorted(names(1, 30))] * 3


def test_every_file_that_servers_and_pipelines_leave_is_explained(edge: Edge) -> None:
    """The killed one's too; and nothing of it is damage."""
    assert run("query", "--data-dir", edge.data, "SELECT count(*) FROM spans").code == 0
    files = [path for path in edge.data.rglob("*") if not path.is_dir()]
    for name in (".run", ".lock", "delivered.json", "repeats.tbl", "doubles.json"):
        assert any(path.name.endswith(name) for path in files), name
    refused = [answer.err for path in files if (answer := run("inspect", path)).code]
    assert refused == []
    answer = run("fsck", "--json", edge.data)
    assert (answer.code, answer.json["damage"]) == (0, []), answer
