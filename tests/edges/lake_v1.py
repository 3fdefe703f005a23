"""The data directory in tests/fixtures/lake-v1, as version 0.1 left it, with its lake.

`python -m tests.edges.lake_v1 FOLDER` made it, with the code of 0.1 (commit 0c0dc7d), by commands
alone; then `tar` packed it. It is not made again. In it:

    spans one … four, two logs, two data points    in the lake; their segments were let go
    spans five, six                                in the lake, and still in a segment
    span seven                                     in a sealed segment
    span eight                                     in the log

Iceberg names files by absolute paths, so whoever unpacks it elsewhere has to write the new place
into the catalog, the metadata and the manifests: `unpacked` does.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import fastavro
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.otel import Signal
from tests.server.running import Server, until
from tests.server.samples import ids

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "lake-v1" / "data.tar.gz"
MADE_AT = "/tmp/penstock-lake-v1/data"  # noqa: S108 - a name in files, not a folder
IN_LAKE = ("one", "two", "three", "four", "five", "six")
SEALED = ("seven",)
HOT = ("eight",)
_NOON_NS = 1_763_208_000_000_000_000
"""2025-11-15 12:00."""


def spans(*names: str, at_ns: int = _NOON_NS) -> bytes:
    """A request with a span for each name."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for name in names:
        trace_id, span_id = ids(name)
        times = {"start_time_unix_nano": at_ns, "end_time_unix_nano": at_ns + 1_000_000}
        scope.spans.add(trace_id=trace_id, span_id=span_id, name=name, **times)
    return request.SerializeToString()


def unpacked(folder: Path, lake: Path | None = None) -> Path:
    """The data directory below `folder`, as it would be if it had been made there.

    With `lake` as if `lake.warehouse` had named that.
    """
    return unpacked_from(ARCHIVE, MADE_AT, folder, lake)


def unpacked_from(archive: Path, made_at: str, folder: Path, lake: Path | None = None) -> Path:
    """The same of any such file, by where it was made."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    data = folder / "data"
    if lake is None:
        lake = data / "lake"
    else:
        (data / "lake").rename(lake)
    moved = _Move(f"{made_at}/lake", str(lake))
    for path in lake.rglob("*"):
        if path.name.endswith(".metadata.json"):
            path.write_text(json.dumps(moved.all_of(json.loads(path.read_text()))))
        elif path.suffix == ".avro":
            moved.avro(path)
    with sqlite3.connect(lake / "catalog.db") as catalog:
        for column in ("metadata_location", "previous_metadata_location"):
            text = f"UPDATE iceberg_tables SET {column} = replace({column}, ?, ?)"  # noqa: S608
            catalog.execute(text, (f"{made_at}/lake", str(lake)))
    catalog.close()
    return data


class _Move:
    """Says the new place wherever the old one is said."""

    def __init__(self, before: str, after: str) -> None:
        self._before, self._after = before, after

    def all_of(self, value: Any) -> Any:
        """Of a document or a record, to its last leaf."""
        match value:
            case str():
                return value.replace(self._before, self._after)
            case dict():
                return {name: self.all_of(each) for name, each in value.items()}
            case list():
                return [self.all_of(each) for each in value]
        return value

    def avro(self, path: Path) -> None:
        """The same records, with the same schema and metadata."""
        with path.open("rb") as file:
            reader: Any = fastavro.reader(file)
            schema, records = reader.writer_schema, [self.all_of(each) for each in reader]
            metadata = {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
            codec = reader.codec
        with path.open("wb") as file:
            fastavro.writer(file, schema, records, codec=codec, metadata=metadata)


def _make(data: Path) -> None:
    server = Server.start(data)
    server.post(Signal.TRACES, spans("one", "two"))
    server.post(Signal.TRACES, spans("three", "four"))
    server.post(Signal.LOGS, logs("first", "second"))
    server.post(Signal.METRICS, metrics("requests", "errors"))
    server.stop()
    pipeline(data)
    server = Server.start(data)
    until(lambda: not list(data.glob("topics/**/*.seg")))
    server.post(Signal.TRACES, spans("five", "six"))
    server.stop()
    pipeline(data)
    delivered = data / "pipeline" / "delivered.json"
    aside = delivered.rename(data.parent / "delivered.json")  # or the segment would be let go
    server = Server.start(data)
    server.post(Signal.TRACES, spans("seven"))
    server.stop()
    server = Server.start(data)
    server.post(Signal.TRACES, spans("eight"))
    server.kill()
    aside.rename(delivered)
    shutil.rmtree(data / "pipeline" / "checkpoints", ignore_errors=True)


def logs(*bodies: str) -> bytes:
    """A request with a log record for each body."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    for body in bodies:
        scope.log_records.add(time_unix_nano=_NOON_NS).body.string_value = body
    return request.SerializeToString()


def metrics(*names: str) -> bytes:
    """A request with a gauge for each name."""
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for name in names:
        scope.metrics.add(name=name).gauge.data_points.add(as_int=1, time_unix_nano=_NOON_NS)
    return request.SerializeToString()


def pipeline(data: Path) -> None:
    """Takes to the lake what is sealed."""
    command = [Path(sys.executable).parent / "penstock", "pipeline", "run", "--once"]
    subprocess.run([*command, "--data-dir", data], check=True)


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
