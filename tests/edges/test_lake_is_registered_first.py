"""Whoever takes data to the lake is known before a store gives its first segment away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.flight as pf
import pytest

from penstock.client import RemoteSubscriber
from penstock.otel import Signal
from tests.cli.conftest import session, warm
from tests.cli.running import run
from tests.patience import until
from tests.server.running import Server, serving
from tests.server.samples import traces

__all__ = ["session", "warm"]
NAMESPACES = [f"team-{number}" for number in range(10)]
NO_LAKE = {"lake": {"enabled": False}}


def flush(server: Server) -> None:
    """Seals everything."""
    assert server.ask("POST", "/api/v1/flush", port="web").json == {"flushed": True, "errors": []}


def subscriber(server: Server, namespace: str, name: str = "remote") -> RemoteSubscriber:
    """Over the network."""
    location = f"grpc://127.0.0.1:{server.ready['flight']}"
    return RemoteSubscriber(location, f"/{namespace}/traces", name)


def send_and_take(server: Server, name: str, *namespaces: str) -> None:
    """A request to each topic, which opens its store; a subscriber has it acknowledged at once."""
    for namespace in namespaces:
        server.export(Signal.TRACES, traces(name), x_penstock_namespace=namespace)
    flush(server)
    for namespace in namespaces:
        with subscriber(server, namespace) as remote:
            next(remote.bundles()).ack()


def registered(data: Path) -> list[dict[str, Any]]:
    """What `penstock subscribers list` says."""
    listed: list[dict[str, Any]] = run("subscribers", "list", "--data-dir", data, "--json").json
    return listed


def segments(data: Path) -> list[Path]:
    """Those that are there."""
    return sorted(data.glob("topics/*/*/*/segments/*.seg"))


@pytest.mark.usefixtures("warm")
def test_every_row_reaches_the_lake_though_another_was_quicker(tmp_path: Path) -> None:
    """Ten new topics, each with a remote subscriber that acknowledges at once."""
    data = tmp_path / "data"
    with serving(data) as server:
        send_and_take(server, "one", *NAMESPACES)
        assert server.stop() == 0
    assert {row["topic"] for row in registered(data) if row["subscriber"] == "lake"} == {
        f"/{namespace}/traces" for namespace in NAMESPACES
    }
    ran = run("pipeline", "run", "--once", "--data-dir", data)
    assert ran.code == 0, ran.err
    counted = "SELECT namespace, count(*) AS n FROM spans GROUP BY namespace ORDER BY namespace"
    answer = run("query", f"--data-dir={data}", "--tier=cold", "--format=json", counted)
    assert answer.json == [{"namespace": each, "n": 1} for each in NAMESPACES]


def test_server_without_a_lake_keeps_nothing_for_one(tmp_path: Path) -> None:
    """It says so in its configuration; then no pipeline runs on that either."""
    data = tmp_path / "data"
    with serving(data, config=NO_LAKE) as server:
        send_and_take(server, "one", "default")
        until(lambda: not segments(data))
        assert server.stop() == 0
    assert [row["subscriber"] for row in registered(data)] == ["remote"]
    refused = run("pipeline", "run", "--once", "--data-dir", data, "--config", f"{data}.yaml")
    assert refused.is_one_sentence()
    assert "lake.enabled" in refused.err


def test_registration_of_a_lake_outlives_the_setting(tmp_path: Path) -> None:
    """A setting deletes nothing: what waits for the lake goes when its name is removed."""
    data = tmp_path / "data"
    with serving(data) as server:
        send_and_take(server, "one", "default")
        assert server.stop() == 0
    kept = segments(data)
    with serving(data, config=NO_LAKE) as server:
        send_and_take(server, "two", "default")
        assert server.stop() == 0
    assert set(kept) < set(segments(data))
    assert run("subscribers", "remove", "/default/traces", "lake", "--data-dir", data).code == 0
    with serving(data, config=NO_LAKE) as server:
        until(lambda: not segments(data))
        assert server.stop() == 0
    assert [row["subscriber"] for row in registered(data)] == ["remote"]


def test_removed_lake_comes_back_with_the_next_start(tmp_path: Path) -> None:
    """The configuration says who takes data, and begins with the oldest that is there."""
    data = tmp_path / "data"
    with serving(data) as server:
        server.export(Signal.TRACES, traces("one"))
        assert server.stop() == 0
    assert run("subscribers", "remove", "/default/traces", "lake", "--data-dir", data).code == 0
    assert registered(data) == []
    with serving(data) as server:
        assert server.stop() == 0
    [row] = registered(data)
    assert (row["subscriber"], row["lag_bundles"]) == ("lake", 1)


@pytest.mark.parametrize("name", ["lake", "archive"])
def test_own_names_cannot_be_used_from_the_network(tmp_path: Path, name: str) -> None:
    """Who answers in the lake's name lets go of what it never had."""
    with serving(tmp_path / "data") as server:
        server.export(Signal.TRACES, traces("one"))
        flush(server)
        with subscriber(server, "default", name) as other:
            for act in (other.register, other.unregister, lambda: next(other.bundles(wait_s=0))):
                with pytest.raises(pf.FlightUnauthorizedError, match="server's own"):
                    act()
