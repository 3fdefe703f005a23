"""100,000 hostile requests of every kind beside honest clients, who do not notice.

`HOSTILE_REQUESTS` says how many, `HOSTILE_SECONDS` for how long at the most. Hostile clients have a
token of their own, as honest ones have.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from penstock.otel import Signal
from tests.edges.hostile import TOKEN as HOSTILE
from tests.server.running import PROTOBUF, ROOT, Server, resident_bytes, serving
from tests.server.samples import logs

L = Signal.LOGS
MIB = 2**20
REQUESTS = int(os.environ.get("HOSTILE_REQUESTS", "100000"))
SECONDS = float(os.environ.get("HOSTILE_SECONDS", "1800"))
QUIET_S = min(20.0, SECONDS)
FLOOR_S = 0.05
"""A quiet run may be quicker than a busy machine lets anybody be."""
MEMORY = 1024 * MIB
HONEST, OVERSEER = "honest-token", "overseer-token"
ENDS: frozenset[str] = frozenset(
    [
        "400",
        "408",
        "413",
        "415",
        "429",
        "503",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "RESOURCE_EXHAUSTED",
        "gone",
    ]
)
"""How a hostile request may end; 200 for those that are only large."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One worker, with tokens and a bound on its memory."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{HONEST} honest\n{HOSTILE} hostile\n{OVERSEER} *\n")
    tokens.chmod(0o600)
    config = {
        "auth": {"tokens_file": str(tokens)},
        "limits": {"memory": f"{MEMORY}B", "in_flight": "128MiB", "timeout": "10s"},
        "retention": {"size_cap": "1GiB", "size_cap_policy": "drop_oldest"},
        "lake": {"enabled": False},
    }
    with serving(tmp_path / "data", "--workers=1", config=config) as started:
        yield started


# --- honest ------------------------------------------------------------------------------------


class Honest:
    """Clients over HTTP and gRPC, one small request after the other, each of them timed."""

    def __init__(self, server: Server) -> None:
        self.times_s: list[float] = []
        self.others: Counter[str] = Counter()
        self._server = server
        self._ended = threading.Event()
        ways = [self._over_http, self._over_grpc] * 2
        self._threads = [threading.Thread(target=way) for way in ways]

    def __enter__(self) -> Honest:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    @property
    def p99_s(self) -> float:
        """The time within which 99 of 100 were answered."""
        return statistics.quantiles(self.times_s, n=100)[-1]

    def _over_http(self) -> None:
        heads = {"content-type": PROTOBUF, "authorization": f"Bearer {HONEST}"}
        with contextlib.closing(self._server.connection()) as connection:
            while not self._ended.wait(0.01):
                began = time.monotonic()
                connection.request("POST", L.http_path, logs("honest"), heads)
                response = connection.getresponse()
                response.read()
                self._count(began, str(response.status))

    def _over_grpc(self) -> None:
        with self._server.channel() as channel:
            method = channel.unary_unary(L.grpc_method)
            metadata = (("authorization", f"Bearer {HONEST}"),)
            while not self._ended.wait(0.01):
                began = time.monotonic()
                try:
                    method(logs("honest"), metadata=metadata, timeout=300)
                except grpc.RpcError as error:
                    self._count(began, str(error.code().name))
                else:
                    self._count(began, "200")

    def _count(self, began: float, end: str) -> None:
        if end == "200":
            self.times_s.append(time.monotonic() - began)
        else:
            self.others[end] += 1


class Outcome(NamedTuple):
    """What became of the hostile requests, and how much memory the worker had at most."""

    ends: dict[str, dict[str, int]]
    errors: list[str]
    peak: int


def attack(server: Server, worker: int) -> Outcome:
    """By another process, whose interpreter is not that of the honest clients."""
    ports = [str(server.ready["http"]), str(server.ready["grpc"])]
    command = [sys.executable, "-m", "tests.edges.hostile", *ports, str(REQUESTS), str(SECONDS)]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        while process.poll() is None:
            peak = max(peak, resident_bytes(worker))
            time.sleep(0.2)
        found = json.load(process.stdout)
    return Outcome(found["ends"], found["errors"], peak)


def report(outcome: Outcome, quiet: Honest, honest: Honest) -> None:
    """What was measured, for whoever runs it."""
    sent = sum(sum(each.values()) for each in outcome.ends.values())
    sys.stderr.write(
        f"{sent} hostile: {outcome.ends}\n"
        f"{len(honest.times_s)} honest: p99 {honest.p99_s:.4f} s, {quiet.p99_s:.4f} s when quiet\n"
        f"most memory of the worker: {outcome.peak // MIB} MiB\n"
    )


@pytest.mark.soak
def test_honest_clients_do_not_notice_hostile_ones(server: Server) -> None:
    """All are answered, 99 of 100 within twice the time of a quiet run; the memory is bounded."""
    with Honest(server) as quiet:
        time.sleep(QUIET_S)
    status = server.get("/api/v1/status", authorization=f"Bearer {OVERSEER}").json
    with Honest(server) as honest:
        outcome = attack(server, status["workers"][0]["pid"])
    report(outcome, quiet, honest)
    assert not outcome.errors
    assert all(outcome.ends.values()), "a kind was never sent"
    assert all(set(ends) <= ENDS | {"200"} for ends in outcome.ends.values())
    assert not honest.others
    assert not quiet.others
    assert honest.p99_s <= 2 * max(quiet.p99_s, FLOOR_S)
    assert outcome.peak < MEMORY
