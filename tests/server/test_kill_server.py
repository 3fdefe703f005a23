"""`kill -9` of the whole server under load, again and again: what it acknowledged is there."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from penstock.otel import Signal
from tests.server.running import Server, serving, stored_names, stored_records
from tests.server.samples import logs, metrics, traces
from tests.server.traffic import Traffic

T = Signal.TRACES
PADDING = 300


def send_again(server: Server, names: set[str]) -> None:
    """Retries requests, byte for byte, as clients do that heard nothing."""
    connection = server.connection()
    for name in sorted(names):
        heads = {"content-type": "application/x-protobuf"}
        connection.request("POST", "/v1/traces", traces(name, padding=PADDING), heads)
        response = connection.getresponse()
        response.read()
        assert response.status == 200
    connection.close()


def kill_again_and_again(data: Path, rounds: int, seed: int) -> None:
    """Kills servers of one data directory; then everything is compared with what they said."""
    random = Random(seed)
    answered: set[str] = set()
    refused: set[str] = set()
    unknown: set[str] = set()
    for number in range(rounds):
        config = {"segment": {"target_size": random.choice(["64KiB", "32MB"])}}
        workers = f"--workers={random.choice([1, 2])}"
        with serving(data, workers, config=config) as server:
            send_again(server, set(random.sample(sorted(answered), min(20, len(answered)))))
            with Traffic(server, f"round{number}", padding=PADDING) as traffic:
                traffic.wait_for(random.choice([1, 50, 300]))
                time.sleep(random.random() * 0.2)
                server.kill()
        answered |= traffic.outcome.answered
        refused |= traffic.outcome.refused
        unknown |= traffic.outcome.unknown
    with serving(data) as server:
        send_again(server, unknown)
        assert server.stop() == 0
    check(data, answered, refused, unknown)


def check(data: Path, answered: set[str], refused: set[str], unknown: set[str]) -> None:
    """Each acknowledged request once, with its content; none that was refused."""
    found = stored_records(data, T)
    names = sorted(span.name for span in found)
    assert answered <= set(names)
    assert not refused & set(names)
    assert set(names) == answered | unknown
    assert sorted(name for name in names if name not in unknown) == sorted(answered)
    for span in found:
        expected = T.request_class.FromString(traces(span.name, padding=PADDING))
        assert span == expected.resource_spans[0].scope_spans[0].spans[0]  # type: ignore[attr-defined]


def test_everything_acknowledged_survives_being_killed(tmp_path: Path) -> None:
    """Once, intact, whatever was in the middle; a retry makes no second copy."""
    kill_again_and_again(tmp_path / "data", 3, 1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_everything_acknowledged_survives_being_killed_often(tmp_path: Path, seed: int) -> None:
    """The same for a long time."""
    kill_again_and_again(tmp_path / "data", 20, seed)


def test_every_signal_survives_being_killed(tmp_path: Path) -> None:
    """Nothing was sealed yet; the log alone brings it back."""
    config = {"segment": {"max_open_duration": "1h"}}
    with serving(tmp_path / "data", config=config) as server:
        assert server.post(Signal.TRACES, traces("span")).status == 200
        assert server.post(Signal.LOGS, logs("record")).status == 200
        assert server.post(Signal.METRICS, metrics("metric")).status == 200
        server.kill()
    assert stored_names(tmp_path / "data", T) == []
    with serving(tmp_path / "data") as server:
        assert server.post(Signal.TRACES, traces("span")).status == 200
        assert server.stop() == 0
    assert stored_names(tmp_path / "data", Signal.TRACES) == ["span"]
    assert stored_names(tmp_path / "data", Signal.LOGS) == ["record"]
    assert stored_names(tmp_path / "data", Signal.METRICS) == ["metric"]


def test_server_killed_while_it_starts_recovers(tmp_path: Path) -> None:
    """At any moment of its recovery."""
    config = {"segment": {"max_open_duration": "1h"}}
    names = {f"span {number}" for number in range(50)}
    with serving(tmp_path / "data", config=config) as server:
        for name in names:
            assert server.post(T, traces(name)).status == 200
        server.kill()
    for seconds in (0.6, 1.0, 1.4):
        server = Server.begin(tmp_path / "data")
        time.sleep(seconds)
        server.kill()
    with serving(tmp_path / "data") as server:
        assert server.stop() == 0
    assert set(stored_names(tmp_path / "data", T)) == names
    assert len(stored_names(tmp_path / "data", T)) == len(names)
