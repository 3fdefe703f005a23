"""The benchmark of receiving: OTLP over gRPC in, durable before the answer, decoded behind it.

The load generator (`penstock load` with a cheaper client) runs in a process of its own, on the
same cores as what it loads. Baselines receive the same requests from the same generator; they do
not check, remember or decode them.
"""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import harness
import ingest_servers
from harness import Row, Run
from penstock.load.fleet import run_load
from penstock.load.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ingest_servers import Server
    from penstock.load.tally import Tally

PENSTOCK = "penstock"
DISCARDING = "grpc.aio that throws them away"
HTTP = "penstock over HTTP"
REDIS = "Redis Streams, fsync always, behind grpc.aio"
CLIENT = str(Path(__file__).with_name("ingest_client.py"))
MB = 1e6


@dataclass(frozen=True)
class Burst:
    """As many requests as the server takes in a slice of time."""

    spans: int
    requests: int
    bytes: int
    seconds: float
    """Until the last answer."""
    settled_s: float
    """Until everything was decoded and sealed."""
    cpu_s: float
    """Of the server's processes, until then."""


@dataclass(frozen=True)
class Load:
    """What is sent."""

    name: str
    batch: int
    in_flight: int

    def plan(self, server: Server, seconds: float, spans_per_second: float = 0.0) -> Plan:
        """Of one run; no two send the same request."""
        return Plan(
            endpoint=server.endpoint,
            signals=("traces",),
            batch=self.batch,
            concurrency=self.in_flight,
            seconds=seconds,
            spans_per_second=spans_per_second,
            seed=random.getrandbits(60),
        )


LARGE = Load("1000 spans", 1000, 16)
SMALL = Load("10 spans", 10, 128)


def large_requests(run: Run) -> Iterator[Row]:
    """400 KB each: memory bandwidth, hashing, decoding and the disk."""
    with _Measured(run, LARGE) as found:
        yield found.sustained(target=150_000)
        yield found.per_cpu_second()
        yield found.compared("MB/s", lambda burst: burst.bytes / MB, DISCARDING, target=0.5)
        yield found.compared("MB/s", lambda burst: burst.bytes / MB, REDIS)
        yield from found.latencies()
        yield from found.memory()


def small_requests(run: Run) -> Iterator[Row]:
    """5 KB each: what every request costs, whatever is in it."""
    with _Measured(run, SMALL) as found:
        yield found.acknowledged(target=5_000)
        yield found.compared("requests/s", lambda burst: burst.requests, DISCARDING)
        yield found.compared("requests/s", lambda burst: burst.requests, REDIS)
        yield found.acknowledged(HTTP)
        yield found.sustained()
        yield found.per_cpu_second()
        yield from found.latencies()
        yield from found.memory()


class _Measured:
    """The servers, each with its bursts, until the rows are written."""

    def __init__(self, run: Run, load: Load) -> None:
        self._run = run
        self._load = load
        self._stack = contextlib.ExitStack()
        self._servers: dict[str, Server] = {}
        self._bursts: dict[str, list[Burst]] = {}

    def __enter__(self) -> _Measured:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        contexts = {
            PENSTOCK: ingest_servers.penstock,
            DISCARDING: ingest_servers.discarding,
            REDIS: ingest_servers.redis_streams,
        }
        for name, context in contexts.items():
            try:
                folder = self._stack.enter_context(self._run.folder())
                self._servers[name] = self._stack.enter_context(context(folder))
            except harness.BaselineAbsent as absent:
                self._run.say(f"skipped: {name}: {absent}")
        if self._load is SMALL:
            self._servers[HTTP] = self._servers[PENSTOCK].over_http()
        for name in self._servers:
            self._burst(name, 0.2)  # opens files and connections, and is not counted
        self._bursts.clear()
        slice_s = 2 * self._run.slice_s
        self._run.medians(
            {name: lambda name=name: self._burst(name, slice_s) for name in self._servers}
        )

    def _burst(self, name: str, seconds: float) -> float:
        server = self._servers[name]
        used = server.cpu_s()
        tally = _send(self._load.plan(server, seconds))
        answered = time.perf_counter()
        server.settle()
        burst = Burst(
            tally.spans,
            tally.acknowledged,
            tally.bytes,
            tally.seconds,
            tally.seconds + time.perf_counter() - answered,
            server.cpu_s() - used,
        )
        self._bursts.setdefault(name, []).append(burst)
        return burst.requests / burst.seconds

    def _median(self, name: str, figure: Callable[[Burst], float]) -> float | None:
        bursts = self._bursts.get(name)
        return median(map(figure, bursts)) if bursts else None

    def _own(self, figure: Callable[[Burst], float]) -> float:
        return median(map(figure, self._bursts[PENSTOCK]))

    def sustained(self, target: float | None = None) -> Row:
        """What it can keep up for ever."""
        rate = self._own(lambda burst: burst.spans / burst.settled_s)
        return Row(f"{self._load.name}, durable and decoded", rate, "spans/s", target=target)

    def acknowledged(self, name: str = PENSTOCK, target: float | None = None) -> Row:
        """What it answers while it lasts."""
        rate = median(burst.requests / burst.seconds for burst in self._bursts[name])
        way = ", over HTTP" if name == HTTP else ""
        return Row(f"{self._load.name}{way}, durable", rate, "requests/s", target=target)

    def per_cpu_second(self) -> Row:
        """With nobody else on the cores it does this much for each."""
        rate = self._own(lambda burst: burst.spans / burst.cpu_s)
        return Row(f"{self._load.name}, each CPU-second", rate, "spans")

    def compared(
        self,
        unit: str,
        count: Callable[[Burst], float],
        baseline: str,
        target: float | None = None,
    ) -> Row:
        """Answered in a second, against the same of another server."""
        ours = self._own(lambda burst: count(burst) / burst.seconds)
        theirs = self._median(baseline, lambda burst: count(burst) / burst.seconds)
        return Row(f"{self._load.name}, durable", ours, unit, baseline, theirs, target=target)

    def latencies(self) -> Iterator[Row]:
        """At half of what it can keep up, from when a request was due."""
        rate = self._own(lambda burst: burst.spans / burst.settled_s) / 2
        tallies = {
            name: _send(self._load.plan(self._servers[name], 4 * self._run.slice_s, rate))
            for name in (PENSTOCK, DISCARDING)
        }
        self._servers[PENSTOCK].settle()
        for quantile in (0.5, 0.99):
            name = f"{self._load.name}, p{quantile * 100:.0f} at half load"
            ours, theirs = (tally.latency_ms(quantile) or 0.0 for tally in tallies.values())
            yield Row(name, ours, "ms", DISCARDING, theirs, better="lower")

    def memory(self) -> Iterator[Row]:
        """The most that one process has had, mapped files included."""
        server, name = self._servers[PENSTOCK], self._load.name
        figures = {"worker": server.worker_bytes(), "decoder": server.decoder_bytes()}
        for process, size in figures.items():
            target = 600.0 if process == "worker" else None
            title = f"{name}, memory of a {process}"
            yield Row(title, size / MB, "MB", target=target, better="lower")


def _send(plan: Plan) -> Tally:
    tally = run_load(plan, module=CLIENT)
    if tally.refused:
        raise RuntimeError(f"{tally.refused} requests were refused: {tally.first_refusal}")
    return tally


CASES = [large_requests, small_requests]

if __name__ == "__main__":
    harness.main("ingest", CASES)
