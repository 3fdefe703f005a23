"""`kill -9` of `penstock serve` alone: its other processes end with it and touch nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock.otel import Signal
from tests.patience import until
from tests.server.running import is_alive, serving, stored_names
from tests.server.samples import logs, traces

T = Signal.TRACES


def files_of(folder: Path) -> dict[str, bytes]:
    """All that can be read there."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_processes_whose_server_was_killed_touch_no_directory(tmp_path: Path) -> None:
    """Another one that stands in its place at once stays as it is, and has everything once."""
    data, moved = tmp_path / "data", tmp_path / "moved"
    names = [f"span {number:02}" for number in range(40)]
    config = {"segment": {"max_open_duration": "1h"}}
    with serving(data, "--workers=2", config=config) as server:
        for name in names:
            assert server.post(T, traces(name)).status == 200
        assert server.post(Signal.LOGS, logs("record")).status == 200
        question = b'{"sql": "SELECT count(*) FROM spans"}'
        assert server.ask("POST", "/api/v1/query", question, port="web").json["rows"] == [[40]]
        pids = server.pids()
        server.process.kill()
        server.process.wait()
        data.rename(moved)
        shutil.copytree(moved, data, ignore=lambda *_: {"sockets"})
        before = files_of(data)
        until(lambda: not any(map(is_alive, pids)))
    assert any(name.endswith(".wal") for name in before)
    assert files_of(data) == before
    with serving(data, "--workers=2") as again:
        assert again.post(T, traces(names[0])).status == 200  # a retry
        assert again.stop() == 0
    assert stored_names(data, T) == names
    assert stored_names(data, Signal.LOGS) == ["record"]
