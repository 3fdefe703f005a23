"""What the programs of other languages send, and whether all of it arrived as it was.

Each program is called with the addresses of the HTTP and the gRPC port. For each way that it has
(protocol, compression) it sends under a service name of its own, and prints a line of JSON:
`{"label": SERVICE, "spans": [[TRACE_ID, SPAN_ID], …]}`. Under each service name there are

- 25 spans in batches of 10, from `span-00`, the parent of all others, each with an event and a link
  to the one before; the odd ones failed;
- 25 log records, from `log-00`;
- the counter `requests` for five routes, the histogram `latency` with three values, and the gauge
  `level`: seven points.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from tests.cli.running import finish, start

if TYPE_CHECKING:
    from pathlib import Path

Ids = dict[str, list[list[str]]]
"""By label: the trace and span ids of its spans."""
BEGIN = 1_700_000_000_000_000_000
Rows = list[dict[str, Any]]


def send(command: list[str], http_port: int, grpc_port: int) -> Ids:
    """Runs a program to its end."""
    addresses = [f"http://127.0.0.1:{port}" for port in (http_port, grpc_port)]
    ended = subprocess.run(
        [*command, *addresses], capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    return {line["label"]: line["spans"] for line in lines}


class Arrived:
    """Everything that a data directory holds, by service name."""

    def __init__(self, data: Path, tiers: str = "hot,warm,cold") -> None:
        tables = ("spans", "logs", "metrics")
        self._rows = {table: query(data, f"FROM {table}", tiers) for table in tables}

    def check(self, label: str, ids: list[list[str]], namespace: str = "default") -> None:
        """Asserts that it is what the program of that label has sent: each once, unaltered."""
        asked = (label, namespace)
        spans, logs, metrics = (self._of(table, *asked) for table in ("spans", "logs", "metrics"))
        assert sorted(map(_span, spans), key=str) == sorted(_spans(ids), key=str)
        assert sorted(map(_log, logs), key=str) == sorted(_logs(), key=str)
        assert sorted(map(_point, metrics), key=str) == sorted(_points(), key=str)

    def _of(self, table: str, label: str, namespace: str) -> Rows:
        asked = (label, namespace)
        rows = self._rows[table]
        return [row for row in rows if (row["service_name"], row["namespace"]) == asked]


def query(data: Path, sql: str, tiers: str = "hot,warm,cold") -> Rows:
    """As users ask."""
    order = ("query", "--data-dir", data, "--tier", tiers, "--format", "json", sql)
    answer = finish(start(*order), 300)
    assert answer.code == 0, answer.err
    rows: Rows = json.loads(answer.out)
    return rows


def _attributes(i: int) -> dict[str, str]:
    number = str(2**52 + 1)
    return {"text": f"é∂✓ {i}", "int": number, "double": "0.1", "bool": "true", "list": '["a","b"]'}


_TYPES = {"int": "int", "double": "double", "bool": "bool", "list": "array"}


def _spans(ids: list[list[str]]) -> Rows:
    return [
        {
            "trace_id": trace_id,
            "span_id": span_id,
            "parent_span_id": ids[0][1] if i else None,
            "name": f"span-{i:02}",
            "kind": "SPAN_KIND_SERVER",
            "start_time_unix_nano": (begun := BEGIN + i * 1_000_000 + 7),
            "end_time_unix_nano": begun + 1_000_001 + i,
            "status_code": "STATUS_CODE_ERROR" if i % 2 else "STATUS_CODE_UNSET",
            "status_message": "broken" if i % 2 else None,
            "attributes": _attributes(i),
            "attribute_types": _TYPES,
            "events": [(begun + 5, "retry", {"attempt": str(i)})],
            "links": [(*ids[i - 1], {"why": "batch"})] if i else [],
        }
        for i, (trace_id, span_id) in enumerate(ids)
    ]


def _span(row: dict[str, Any]) -> dict[str, Any]:
    events = [(e["time_unix_nano"], e["name"], e["attributes"]) for e in row["events"] or ()]
    links = [(e["trace_id"], e["span_id"], e["attributes"]) for e in row["links"] or ()]
    names = list(_spans([["", ""]])[0])
    return {name: row[name] for name in names} | {"events": events, "links": links}


def _logs() -> Rows:
    return [
        {
            "time_unix_nano": BEGIN + i * 1_000_000 + 3,
            "severity_number": 13,
            "severity_text": "WARN",
            "body": f"log-{i:02}",
            "attributes": _attributes(i),
            "attribute_types": _TYPES,
        }
        for i in range(25)
    ]


def _log(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _logs()[0]}


def _points() -> list[tuple[Any, ...]]:
    requests = [("requests", "sum", (i + 1) * 1000, {"route": f"r{i}"}) for i in range(5)]
    return [*requests, ("latency", "histogram", (3, 731.0), None), ("level", "gauge", 0.1, None)]


def _point(row: dict[str, Any]) -> tuple[Any, ...]:
    histogram = row["histogram"]
    value = row["value_double"] if row["value_int"] is None else row["value_int"]
    if histogram is not None:
        value = (histogram["count"], histogram["sum"])
    return row["name"], row["type"], value, row["attributes"]
