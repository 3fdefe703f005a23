"""A data directory that is named from where the server was started, as by default."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.client import RemoteSubscriber
from penstock.otel import Signal
from tests.server.running import serving, stored_names
from tests.server.samples import sample, traces


def test_relative_data_dir_works_as_any_other(tmp_path: Path) -> None:
    """Every signal is stored, repeats are known, rows are found, subscribers are counted."""
    data = Path(os.path.relpath(tmp_path / "data"))
    with serving(data) as server:
        for signal in Signal:
            assert server.post(signal, sample(signal, "x")).status == 200
        assert server.post(Signal.TRACES, traces("again")).status == 200
        assert server.post(Signal.TRACES, traces("again")).status == 200
        location = f"grpc://127.0.0.1:{server.ready['flight']}"
        with RemoteSubscriber(location, "/default/traces", "mine") as subscriber:
            assert subscriber.register()
        body = b'{"sql": "SELECT count(*) FROM spans"}'
        answer = server.ask("POST", "/api/v1/query", body, port="web")
        assert answer.json["rows"] == [[2]]
        assert server.stop() == 0
    assert stored_names(data, Signal.TRACES) == ["again", "x"]
