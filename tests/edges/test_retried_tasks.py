"""Tasks that Spark runs again, or twice at once, write to a warehouse on S3."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pyarrow import fs
from pyiceberg.catalog import load_catalog

from penstock.otel import Signal
from tests.edges.hooks import hooked
from tests.pipeline.cluster import quick_spark, run_command, standalone_cluster
from tests.server.running import serving
from tests.server.samples import ids
from tests.servers.fixtures import s3

if TYPE_CHECKING:
    from tests.servers.seaweed import S3Server

pytestmark = pytest.mark.away
__all__ = ["s3"]

DAYS = (dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC))
"""A task writes a file for each."""
SPANS = 40

_COUNTED = """
import os, signal, time

def nth(folder):
    for number in range(1000):
        try:
            os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_EXCL))
            return number
        except FileExistsError:
            pass

inner = module.DataFileWriter.finish

def finish(self):
    number = nth(FOLDER)
    act(number)
    return inner(self)

module.DataFileWriter.finish = finish
"""
_DYING = """
def act(number):
    if number == 1:  # its first file is whole, its second one half
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 2:
        raise OSError("the connection was reset")
"""
_SLOW = """
def act(number):
    if number == 1:
        time.sleep(600)
"""


class Warehouse:
    """A data directory whose lake is on S3, used by commands alone."""

    def __init__(self, s3: S3Server, folder: Path) -> None:
        self._folder = folder
        self._runs = itertools.count()
        self._place = s3.place()
        self._files = fs.S3FileSystem(endpoint_override=s3.endpoint, anonymous=True, scheme="http")
        self.data = folder / "data"
        self._config: dict[str, Any] = {
            "lake": {
                "warehouse": self._place,
                "catalog": {
                    "type": "sql",
                    "uri": f"sqlite:///{folder}/catalog.db",
                    "s3.endpoint": s3.endpoint,
                    "s3.anonymous": "true",
                    "s3.region": "us-east-1",
                },
            }
        }

    def send(self, *requests: bytes) -> None:
        """Stores them durably; all of it is sealed."""
        with serving(self.data) as server:
            for request in requests:
                assert server.post(Signal.TRACES, request).status == 200
            assert server.stop() == 0

    def run(self, *command: str, **variables: str) -> Any:
        """A command on it that succeeds; its JSON."""
        config = self._folder / "penstock.json"
        config.write_text(json.dumps(self._config))
        where = ("--json", "--data-dir", self.data, "--config", config)
        own = self._folder / f"run-{next(self._runs)}"
        own.mkdir()
        answer = run_command(own, *command, *where, **variables)
        assert answer.code == 0, answer.err
        return answer.json

    def names(self) -> list[str]:
        """The spans of the table, as another reader of Iceberg finds them."""
        with load_catalog("penstock", **self._config["lake"]["catalog"]) as catalog:
            rows = catalog.load_table("otel.spans").scan(selected_fields=("name",)).to_arrow()
        return sorted(rows["name"].to_pylist())

    def data_files(self) -> list[str]:
        """All below the table's folder, whether it has them or not."""
        folder = f"{self._place.removeprefix('s3://')}/spans/data"
        found = self._files.get_file_info(fs.FileSelector(folder, recursive=True))
        return sorted(each.path for each in found if each.is_file)

    def rows_of(self, path: str) -> int:
        """ArrowInvalid where it is half a file."""
        return int(pq.read_metadata(path, filesystem=self._files).num_rows)


@pytest.fixture
def warehouse(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """An empty one, and spans of two days in two requests."""
    # The S3 server does not unpack the checksums behind the data of clients that do not sign.
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")
    made = Warehouse(s3, tmp_path)
    made.send(*(spans(range(first, first + SPANS // 2)) for first in (0, SPANS // 2)))
    return made


def spans(numbers: range) -> bytes:
    """A request with these, half of them of each day."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in numbers:
        trace_id, span_id = ids(f"span {number}")
        start = int(DAYS[number % 2].timestamp()) * 10**9 + number
        scope.spans.add(
            trace_id=trace_id, span_id=span_id, name=f"span {number}", start_time_unix_nano=start
        )
    return request.SerializeToString()


def all_of_them() -> list[str]:
    """Each once."""
    return sorted(f"span {number}" for number in range(SPANS))


def faults(folder: Path, act: str) -> dict[str, str]:
    """Variables with which tasks do that when they finish their files; all count together."""
    counted = folder / "finished"
    counted.mkdir()
    code = f"FOLDER = {str(counted)!r}\n{act}{_COUNTED}"
    return hooked(folder / "hook", "penstock.lake.writer", code)


def test_task_that_dies_within_its_files_is_retried_and_each_row_is_there_once(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """Killed between two files, cut off within one; what they left expires, and not at once."""
    run = ("pipeline", "run", "--once", "--master", "local[1,4]")
    report = warehouse.run(*run, **faults(tmp_path, _DYING))
    assert report["rows"]["spans"] == SPANS
    assert warehouse.names() == all_of_them()
    left = warehouse.data_files()
    assert len(left) > report["files"], "nothing was left by the tasks that died"
    assert sum(map(warehouse.rows_of, left)) > SPANS

    expire = ("pipeline", "expire", "--table", "spans")
    assert warehouse.run(*expire)["tables"][0]["orphans"] == 0
    assert warehouse.data_files() == left
    gone = warehouse.run(*expire, "--orphan-grace", "0s")["tables"][0]["orphans"]
    assert gone >= len(left) - report["files"]
    assert len(warehouse.data_files()) == report["files"]
    assert warehouse.names() == all_of_them()


def test_task_that_runs_twice_at_once_is_committed_once(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task hangs on one machine, speculation starts it on another, and kills the first."""
    for name, value in faults(tmp_path, _SLOW).items():
        monkeypatch.setenv(name, value)  # also for the workers of the cluster
    (tmp_path / "spark").mkdir()
    eager = quick_spark(
        tmp_path / "spark",
        speculation="true",
        speculation_interval="100ms",
        speculation_task_duration_threshold="1s",
    )
    with standalone_cluster(tmp_path / "cluster", hosts=("127.0.0.1", "127.0.0.2")) as cluster:
        report = warehouse.run(*("pipeline", "run", "--once", "--master", cluster.master), **eager)
    assert report["rows"]["spans"] == SPANS
    assert warehouse.names() == all_of_them()
    assert len([*(tmp_path / "finished").iterdir()]) > report["files"], "no task ran twice"
