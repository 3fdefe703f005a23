"""`penstock load` sends what it says, and says what became of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from typing import TYPE_CHECKING

import pytest

from penstock.otel.signals import Signal
from tests.cli.running import PATIENCE_S, SCRIPT, finish, run, start
from tests.load.helpers import records
from tests.load.receiver import Reply, receiver

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ["--spans", "40", "--spans-per-second", "0", "--batch", "20"]
COUNTS = {"requests", "spans", "logs", "data_points", "acknowledged", "refused", "retried", "bytes"}
FIGURES = {"seconds", "spans_per_second", "latency_p50_ms", "latency_p99_ms", "seed"}


def test_json_tells_counts_rates_and_latencies() -> None:
    """One document, whose counts are what the server got."""
    with receiver() as server:
        answer = run("load", "--endpoint", server.url, *QUICK, "--json")
        got = len(server.got)
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert set(found) >= COUNTS | FIGURES
    assert (found["requests"], found["acknowledged"], found["spans"]) == (got, got, 40)
    assert found["refused"] == found["retried"] == 0
    assert found["latency_p50_ms"] <= found["latency_p99_ms"]


def test_text_is_a_table_and_a_line_without_a_bar() -> None:
    """Where output is piped."""
    with receiver() as server:
        answer = run("load", "--endpoint", server.url, *QUICK, "--signals", "traces")
    assert (answer.code, answer.err) == (0, "")
    headers, counts, rates = answer.out.splitlines()
    assert headers.split()[:5] == ["requests", "acknowledged", "refused", "retried", "spans"]
    assert counts.split() == ["2", "2", "0", "0", "40", "0", "0"]
    assert "spans/s" in rates
    assert "p99" in rates


def test_terminal_sees_a_bar() -> None:
    """And the table behind it."""
    terminal, inner = os.openpty()
    with receiver() as server:
        process = start("load", "--endpoint", server.url, *QUICK, stdout=inner)
        os.close(inner)
        shown = b""
        try:
            while data := os.read(terminal, 65536):
                shown += data
        except OSError:  # the other end is closed
            pass
        answer = finish(process)
    os.close(terminal)
    assert (answer.code, answer.err) == (0, "")
    assert b"sending" in shown
    assert b"100%" in shown
    assert b"acknowledged" in shown


def test_refusals_end_with_1_and_the_servers_reason() -> None:
    """The counts are told all the same."""
    with receiver(always=Reply(403, {}, b"the token may not")) as server:
        answer = run("load", "--endpoint", server.url, *QUICK, "--signals", "traces", "--json")
    assert answer.code == 1
    assert answer.json["refused"] == 2
    assert answer.err == "penstock: 2 of 2 requests were refused: HTTP 403: the token may not\n"


def test_options_reach_the_server() -> None:
    """The namespace, the token, the signals, the batch."""
    with receiver() as server:
        who = ["--namespace", "tests", "--token", "secret-token"]
        answer = run("load", "--endpoint", server.url, *QUICK, "--signals", "logs,traces", *who)
        got = list(server.got)
    assert answer.code == 0
    assert {each.signal for each in got} == {Signal.TRACES, Signal.LOGS}
    assert {each.headers["x-penstock-namespace"] for each in got} == {"tests"}
    assert {each.headers["authorization"] for each in got} == {"Bearer secret-token"}
    batches = [each.body for each in got if each.signal is Signal.TRACES]
    assert [len(list(records(Signal.TRACES, body))) for body in batches] == [20, 20]


def names_of(seed: int) -> list[str]:
    """The names of the spans that a seed sends."""
    with receiver() as server:
        one = ["--concurrency", "1", "--signals", "traces", "--seed", str(seed)]
        answer = run("load", "--endpoint", server.url, *QUICK, *one, "--json")
        assert answer.json["seed"] == seed
        bodies = server.bodies(Signal.TRACES)
    return [
        f"{span.span_id.hex()} {span.name}"
        for body in bodies
        for _, span in records(Signal.TRACES, body)
    ]


def test_seed_sends_the_same_again() -> None:
    """Ids and names; another one sends others."""
    assert names_of(7) == names_of(7) != names_of(8)


def test_low_rates_send_small_requests() -> None:
    """So that the first does not take minutes to come."""
    with receiver() as server:
        slow = ["--spans-per-second", "40", "--spans", "20", "--signals", "traces"]
        answer = run("load", "--endpoint", server.url, *slow, "--json")
    assert answer.json["requests"] == 1
    assert answer.json["spans"] == 20


def test_interrupted_load_ends_without_a_traceback() -> None:
    """And its processes with it: nothing more arrives."""
    with receiver() as server:
        process = start("load", "--endpoint", server.url, "--seconds", "600", "--processes", "2")
        assert server.first.wait(PATIENCE_S)
        process.send_signal(signal.SIGINT)
        answer = finish(process)
    assert answer.code == 130
    assert answer.err.strip() == ""


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_server_stores_what_was_acknowledged(transport: str, tmp_path: Path) -> None:
    """Over both transports, in the namespace that was asked for."""
    ports = [part for name in ("grpc", "http", "web") for part in (f"--{name}-port", "0")]
    command = [SCRIPT, "serve", "--data-dir", tmp_path / "data", *ports]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, **pipes) as server:
        try:
            ready = json.loads(server.stdout.readline())
            endpoint = f"127.0.0.1:{ready['grpc']}"
            if transport == "http":
                endpoint = f"http://127.0.0.1:{ready['http']}"
            given = ["--namespace", "shop", "--processes", "2", *QUICK]
            answer = run("load", "--endpoint", endpoint, *given, "--json")
            flush = f"http://127.0.0.1:{ready['web']}/api/v1/flush"
            urllib.request.urlopen(urllib.request.Request(flush, method="POST")).close()
        finally:
            server.terminate()
            server.wait(PATIENCE_S)
    assert (answer.code, answer.err) == (0, "")
    kept = run("topics", "--data-dir", tmp_path / "data", "--json").json
    assert {row["topic"] for row in kept} == {"/shop/traces", "/shop/logs", "/shop/metrics"}
    assert sum(row["messages"] for row in kept) == answer.json["acknowledged"]
