"""`penstock status`, with the server running or stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client import RemoteSubscriber
from penstock.otel import Signal
from tests.cli.running import run
from tests.pipeline.flush.helpers import without_spark
from tests.pipeline.helpers import LOGS, Data, spans
from tests.query.helpers import cold, hot, warm
from tests.server.running import serving, until
from tests.server.samples import logs, traces

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def status(data: Path, *flags: str) -> Any:
    """What it says as JSON."""
    answer = run("status", "--json", "--data-dir", data, *flags)
    assert (answer.code, answer.err) == (0, "")
    return answer.json


def test_tiers_are_counted_where_the_rows_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request in one of them."""
    without_spark(monkeypatch)
    data = Data(tmp_path / "data")
    cold(data, spans(1, 2), spans(3))
    warm(data, spans(4))
    data.seal([logs("x")], topic=LOGS)
    with hot(data, spans(5), spans(6)):
        found = status(data.root)
    counts = {
        table: (tier["hot_messages"], tier["warm_segments"], tier["cold_rows"])
        for table, tier in found["tiers"].items()
    }
    assert counts == {"spans": (2, 1, 3), "logs": (0, 1, 0), "metrics": (0, 0, 0)}
    assert found["tiers"]["spans"]["cold_files"] == 1
    assert min(found["sizes"].values()) > 0
    assert found["server"] == {"running": False}
    assert found["problems"] == []


def test_running_server_is_described(tmp_path: Path) -> None:
    """With its ports, also where it wants tokens: its owner needs none."""
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-for-all *\n")
    config = {"auth": {"tokens_file": str(tokens)}, "segment": {"max_open_duration": "1h"}}
    with serving(tmp_path / "data", "--workers=2", config=config) as server:
        heads = {"authorization": "Bearer a-token-for-all"}
        assert server.post(Signal.TRACES, traces("x"), **heads).status == 200
        found = status(tmp_path / "data")
        shown = run("status", "--data-dir", tmp_path / "data")
        server.stop()
    running = found["server"]
    ports = {name: server.ready[name] for name in ("grpc", "http", "flight", "web")}
    assert running.items() >= {"running": True, "workers": 2, "problems": [], **ports}.items()
    assert running["requests_per_second"] >= 0
    assert found["tiers"]["spans"]["hot_messages"] == 1
    assert f"grpc {server.ready['grpc']}" in shown.out
    assert status(tmp_path / "data")["server"] == {"running": False}


def test_worker_that_does_not_answer_is_a_problem(tmp_path: Path) -> None:
    """The rest is shown all the same."""
    with serving(tmp_path / "data") as server:
        (tmp_path / "data" / "sockets" / "0.sock").unlink()
        found = status(tmp_path / "data")
        assert len(found["server"]["problems"]) == 1
        assert "worker 0 does not answer" in found["server"]["problems"][0]
        assert server.stop() == 0


def test_slowest_subscriber_is_the_lag(tmp_path: Path) -> None:
    """In bundles; without subscribers there is none."""
    with serving(tmp_path / "data", config={"lake": {"enabled": False}}) as server:
        server.post(Signal.TRACES, traces("x"))
        assert status(tmp_path / "data")["lag"] is None
        location = f"grpc://127.0.0.1:{server.ready['flight']}"
        with RemoteSubscriber(location, "/default/traces", "slow") as subscriber:
            subscriber.register()
        server.ask("POST", "/api/v1/flush", port="web")
        # What is sealed is written down a moment later.
        lag = until(lambda: (found := status(tmp_path / "data")["lag"])["lag_bundles"] and found)
        server.stop()
    place = (lag["subscriber"], lag["topic"], lag["partition"], lag["lag_bundles"])
    assert place == ("slow", "/default/traces", 0, 1)


def test_budget_is_that_of_the_configuration(tmp_path: Path) -> None:
    """Used by logs and segments; the lake is no part of it."""
    data, config = Data(tmp_path / "data"), tmp_path / "penstock.yaml"
    warm(data, spans(1))
    config.write_text("retention: {size_cap: 1GiB}\n")
    found = status(data.root, "--config", str(config))
    used = found["sizes"]["log"] + found["sizes"]["segments"]
    assert found["budget"] == {"used_bytes": used, "limit_bytes": 2**30}
    shown = run("status", "--data-dir", data.root, "--config", config)
    assert "of 1.0 GiB (0%)" in shown.out


def test_one_screen_says_all_of_it(tmp_path: Path) -> None:
    """One line a matter, and no more lines than a terminal has."""
    shown = run("status", "--data-dir", Data(tmp_path / "data").root)
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    words = {line.split()[0] for line in lines if line}
    assert words >= {"server", "spans", "logs", "metrics", "disk", "budget", "lag", "pipeline"}
    assert len(lines) <= 24


def test_folder_that_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    """In one sentence."""
    answer = run("status", "--data-dir", tmp_path)
    assert (answer.code, answer.out) == (1, "")
    assert "penstock.json" in answer.err
