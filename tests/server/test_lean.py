"""What the server's processes have in memory."""

from __future__ import annotations

from pathlib import Path

from penstock.otel import Signal
from tests.server.running import children_of, serving
from tests.server.samples import traces


def test_no_process_of_the_server_has_pandas(tmp_path: Path) -> None:
    """Not after a request was decoded and a question answered, either."""
    with serving(tmp_path / "data") as server:
        assert server.post(Signal.TRACES, traces("a")).status == 200
        assert server.ask("POST", "/api/v1/flush", port="web").status == 200
        question = b'{"sql": "SELECT count(*) AS n FROM spans"}'
        asked = server.ask("POST", "/api/v1/query", question, port="web")
        assert asked.status == 200, asked.body
        found, pids = [], [server.process.pid]
        while pids:
            pid = pids.pop()
            pids += children_of(pid)
            found.append(Path(f"/proc/{pid}/maps").read_text())
    assert len(found) > 3
    assert not [maps for maps in found if "/pandas/" in maps]
