"""OpenTelemetry's Collector in front of Penstock: everything it was given arrives."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.otel import Signal
from tests.interop import parts
from tests.interop.contents import Arrived, query, send
from tests.patience import PATIENCE_S
from tests.server.running import PROTOBUF, answer_of, serving, until
from tests.server.samples import sample
from tests.servers.ports import free_ports

EXPORTERS = {
    "http-none": {"compression": "none"},
    "http-gzip": {"compression": "gzip"},
    "http-zstd": {"compression": "zstd"},
    "json-none": {"compression": "none", "encoding": "json"},
    "json-gzip": {"compression": "gzip", "encoding": "json"},
    "grpc-none": {"compression": "none"},
    "grpc-gzip": {"compression": "gzip"},
}
"""By namespace: each exporter sends all that comes to its own."""
"""How long a Collector may take to send again what was put off."""
COLUMNS = {
    Signal.TRACES: ("spans", "name"),
    Signal.LOGS: ("logs", "body"),
    Signal.METRICS: ("metrics", "name"),
}


def configuration(http_port: int, grpc_port: int, to_http: int, to_grpc: int) -> dict[str, Any]:
    """Receives on the first two ports, and sends to the others until it has succeeded."""
    exporters = {}
    for name, options in EXPORTERS.items():
        kind, target = ("otlp_grpc", f"127.0.0.1:{to_grpc}")
        if not name.startswith("grpc"):
            kind, target = ("otlp_http", f"http://127.0.0.1:{to_http}")
        exporters[f"{kind}/{name}"] = {
            "endpoint": target,
            "tls": {"insecure": True},
            "headers": {"x-penstock-namespace": name},
            "sending_queue": {"enabled": True, "queue_size": 10_000, "num_consumers": 2},
            "retry_on_failure": {
                "enabled": True,
                "initial_interval": "200ms",
                "max_interval": "1s",
                "max_elapsed_time": "0s",
            },
            **options,
        }
    ends = {
        name: {"endpoint": f"127.0.0.1:{port}"}
        for name, port in (("http", http_port), ("grpc", grpc_port))
    }
    pipeline = {"receivers": ["otlp"], "exporters": list(exporters)}
    return {
        "receivers": {"otlp": {"protocols": ends}},
        "exporters": exporters,
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {signal.value: pipeline for signal in Signal},
        },
    }


@contextlib.contextmanager
def collecting(folder: Path, *ports: int) -> Iterator[None]:
    """A Collector for the length of a block; its end in order, so that its queues are empty."""
    settings, errors = folder / "collector.yaml", folder / "collector.stderr"
    settings.write_text(json.dumps(configuration(*ports)))
    with errors.open("wb") as stderr:
        command = [parts.collector(), "--config", f"file:{settings}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        until(lambda: "Everything is ready" in errors.read_text())
        yield
        process.terminate()
        assert process.wait(120) == 0, errors.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()


def test_what_the_collector_passes_on_is_unaltered(tmp_path: Path) -> None:
    """By each of its exporters, from what Go's SDK gave it."""
    ports = free_ports(2)
    sender = parts.go_sender()
    with serving(tmp_path / "data") as server:
        with collecting(tmp_path, *ports, server.ready["http"], server.ready["grpc"]):
            sent = send(sender, *ports)
        arrived = Arrived(tmp_path / "data")
    for namespace in EXPORTERS:
        for label, ids in sent.items():
            arrived.check(label, ids, namespace)


def test_nothing_is_lost_when_the_server_is_killed_under_the_collector(tmp_path: Path) -> None:
    """A kill between its requests, and a while without any server: it sends again until it may."""
    ports = free_ports(4)
    flags = (f"--http-port={ports[2]}", f"--grpc-port={ports[3]}")
    names = {f"record-{number:03}" for number in range(120)}
    data = tmp_path / "data"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(data, *flags))
        stack.enter_context(collecting(tmp_path, *ports))
        for number, name in enumerate(sorted(names)):
            give(ports[0], name)
            if number == 60:
                server.kill()
        stack.enter_context(serving(data, *flags))
        end = time.monotonic() + PATIENCE_S
        while (left := missing(data, names)) and time.monotonic() < end:
            time.sleep(1)
    assert left == {}


def give(port: int, name: str) -> None:
    """A record of each signal to the Collector, which acknowledges it."""
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    ) as connection:
        for signal in Signal:
            body, head = sample(signal, name), {"content-type": PROTOBUF}
            connection.request("POST", signal.http_path, body, head)
            answer = answer_of(connection.getresponse())
            assert answer.status == 200, answer.body


def missing(data: Path, names: set[str]) -> dict[tuple[str, str], set[str]]:
    """By table and namespace."""
    found = {}
    for table, column in COLUMNS.values():
        rows = query(data, f"FROM {table} SELECT namespace, {column} AS name")
        for namespace in EXPORTERS:
            there = {row["name"] for row in rows if row["namespace"] == namespace}
            if left := names - there:
                found[table, namespace] = left
    return found
