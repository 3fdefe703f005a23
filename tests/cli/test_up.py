"""`penstock up` runs the server and the pipeline, and ends both."""

from __future__ import annotations

import json
import signal
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from penstock.otel import Signal
from tests.cli.running import finish, start
from tests.patience import PATIENCE_S
from tests.server.samples import traces

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free ports, and batches that do not wait."""
    for port in ("GRPC", "HTTP", "FLIGHT", "WEB"):
        monkeypatch.setenv(f"PENSTOCK_LISTEN_{port}_PORT", "0")
    monkeypatch.setenv("PENSTOCK_SEGMENT_MAX_OPEN_DURATION", "500ms")
    monkeypatch.setenv("PENSTOCK_PIPELINE_FLUSH_MAX_AGE_SECS", "1")


@pytest.mark.away
def test_what_is_sent_arrives_in_the_lake(tmp_path: Path) -> None:
    """One command from OTLP to a table; SIGTERM ends it with 0."""
    process = start("up", "--data-dir", tmp_path / "data", "--master", "local[1]")
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        _post(ready, "one")
        line = process.stdout.readline().decode()
        assert line.startswith("batch ")
        assert " 1 spans;" in line
        assert list((tmp_path / "data" / "lake" / "spans" / "data").rglob("*.parquet"))
    finally:
        process.send_signal(signal.SIGTERM)
        answer = finish(process)
    assert answer.code == 0


def test_server_that_does_not_start_is_the_end(tmp_path: Path) -> None:
    """With its sentence and its code; no pipeline goes on alone."""
    (tmp_path / "data").write_text("a file, and no folder")
    answer = finish(start("up", "--data-dir", tmp_path / "data"))
    assert answer.code != 0
    assert answer.err


def _post(ready: dict[str, Any], name: str) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{ready['http']}{Signal.TRACES.http_path}",
        data=traces(name),
        headers={"Content-Type": "application/x-protobuf"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:  # noqa: S310 - our own
        assert response.status == 200
