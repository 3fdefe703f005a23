"""A process of the server that hangs is seen, replaced, and holds up nobody's end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.flight as pf
import pytest

from penstock.otel import Signal
from tests.server.running import Server, children_of, serving, until
from tests.server.samples import traces

T = Signal.TRACES
RESTARTS = "penstock_child_restarts_total"
CONFIG: dict[str, Any] = {
    "workers": 1,
    "answer_deadline": "6s",
    "stop_deadline": "10m",  # longer than a test waits: who is held up never ends
    "segment": {"max_open_duration": "100ms"},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One that soon loses its patience."""
    with serving(tmp_path / "data", config=CONFIG) as running:
        yield running


def child(server: Server, module: str) -> int:
    """The process of the server that runs the module."""

    def runs(pid: int) -> bool:
        return module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")

    found: int = until(lambda: next(filter(runs, server.pids()), None))
    return found


def freeze(server: Server, module: str) -> int:
    """Stops it as if it hung."""
    pid = child(server, module)
    os.kill(pid, signal.SIGSTOP)
    return pid


def is_unwell(server: Server) -> bool:
    """Whether its health is not what it should be."""
    return server.get("/healthz").status == 503


FLIGHT, DECODER = "penstock.server.flight.process", "penstock.server.keeping.decoder"
CHECKER = "penstock.server.receiving.checker"
LARGE = traces("large", padding=3_000_000)


def test_flight_process_that_hangs_is_replaced(server: Server) -> None:
    """It shows in health, and then the port answers again."""
    hung = freeze(server, FLIGHT)
    until(lambda: is_unwell(server))
    until(lambda: hung not in children_of(server.process.pid))
    until(lambda: not is_unwell(server))
    with pf.connect(f"grpc://127.0.0.1:{server.ready['flight']}") as client:
        assert list(client.list_actions())


def test_decoder_that_hangs_is_replaced(server: Server) -> None:
    """It shows in health; what it was at is sealed by the next one, and nothing is set aside."""
    hung = freeze(server, DECODER)
    assert server.post(T, traces("a")).status == 200
    until(lambda: is_unwell(server))
    until(lambda: not is_unwell(server))
    assert child(server, DECODER) != hung

    def is_sealed() -> bool:
        [topic] = server.get("/api/v1/topics").json["topics"]
        return bool(topic["sealed"] == topic["end"] == 1)

    until(is_sealed)
    assert server.metric("penstock_store_set_aside_total") == 0
    assert restarts(server, "decoder") >= 1


def restarts(server: Server, child: str) -> float:
    """How many of these processes were replaced."""
    lines = server.get("/metrics").body.decode().splitlines()
    [line] = [each for each in lines if each.startswith(f'{RESTARTS}{{child="{child}"}}')]
    return float(line.rpartition(" ")[2])


def test_checker_that_hangs_is_replaced(server: Server) -> None:
    """It shows in health; its request is put off, and the next one is checked."""
    assert server.post(T, LARGE).status == 200
    hung = freeze(server, CHECKER)
    with ThreadPoolExecutor(1) as thread:
        put_off = thread.submit(server.post, T, LARGE)
        until(lambda: is_unwell(server))
        problems = server.get("/healthz").json["problems"]
        assert put_off.done() or any("a check has not ended" in each for each in problems)
        assert put_off.result().status == 503
    assert server.post(T, traces("b", padding=3_000_000)).status == 200
    assert child(server, CHECKER) != hung
    assert not is_unwell(server)
    assert restarts(server, "checker") == 1


def test_children_that_hang_do_not_hold_up_the_end(server: Server) -> None:
    """The server ends in order, and what it had acknowledged is there."""
    assert server.post(T, LARGE).status == 200
    for module in (FLIGHT, DECODER, CHECKER):
        freeze(server, module)
    assert server.post(T, traces("a")).status == 200
    assert server.stop() == 0


def test_check_that_hangs_does_not_hold_up_the_end(server: Server) -> None:
    """Its client is told to come again, long before it would have lost its patience by itself."""
    assert server.post(T, LARGE).status == 200
    freeze(server, CHECKER)
    with ThreadPoolExecutor(1) as thread:
        put_off = thread.submit(server.post, T, LARGE)
        until(lambda: server.get("/api/v1/status").json["workers"][0]["in_flight_bytes"])
        assert server.stop() == 0
        assert put_off.result().status == 503
