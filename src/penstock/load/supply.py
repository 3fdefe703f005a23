"""The requests of one process, in an order that its seed decides."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.load.instruments import metric_request
from penstock.load.requests import log_request, resources, trace_request
from penstock.load.shop import Shop
from penstock.load.stamps import Stamp, nonce
from penstock.otel.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.load.plan import Plan
    from penstock.model.clock import Clock

SPANS_A_COLLECTION: Final = 1000
"""Every instrument is read once while the shop makes so many spans."""
_SPANS_BUILT: Final = 4000
"""About so many different ones are made in advance."""


class Request(NamedTuple):
    """What is sent at once."""

    signal: Signal
    data: bytes
    records: int


@dataclass(frozen=True, slots=True)
class _Unit:
    """The same spans as traces, as what was logged in them, and as metrics."""

    traces: Stamp
    logs: Stamp
    metrics: Stamp | None


class Supply:
    """Units of `batch` spans, each with a number; the last of a count may be smaller."""

    def __init__(self, plan: Plan, process: int, clock: Clock) -> None:
        self._plan = plan
        self._process = process
        self._clock = clock
        self._signals = {Signal(name) for name in plan.signals}
        self._random = Random(f"{plan.seed}/{process}")
        self._first_nonce = Random(plan.seed).getrandbits(40)
        self._shop = Shop(self._random)
        self._resources = resources(self._random, process)
        self._begin_ns = clock.wall_ns()
        every = max(1, SPANS_A_COLLECTION // plan.batch)
        count = max(2, min(8, _SPANS_BUILT // plan.batch)) if every == 1 else 2 * every
        spans = plan.spans_of(process)
        self.units = None if spans is None else -(-spans // plan.batch)
        """How many there are; None: without end."""
        if self.units is not None:
            count = min(count, self.units)
        rest = 0 if spans is None else spans % plan.batch
        self._units = [self._make(plan.batch, number % every == 0) for number in range(count)]
        self._last = self._make(rest, collected=True) if rest else None

    def requests(self, number: int) -> Iterator[Request]:
        """What the unit with that number sends, as of now."""
        unit = self._units[number % len(self._units)]
        if self._last is not None and number + 1 == self.units:
            unit = self._last
        ending = nonce(self._first_nonce, number * self._plan.processes + self._process)
        for stamp in (unit.traces, unit.logs, unit.metrics):
            if stamp is not None and stamp.records and stamp.signal in self._signals:
                yield Request(
                    stamp.signal, stamp.copy(self._clock.wall_ns(), ending), stamp.records
                )

    def _make(self, count: int, collected: bool) -> _Unit:
        begin_ns, random = self._begin_ns, self._random
        spans = self._shop.spans(count)
        traces = trace_request(spans, self._resources)
        logs = log_request(spans, self._resources, random)
        metrics = None
        if collected:
            points = metric_request(spans, self._resources, random, begin_ns)
            # A point has its own time; the times of spans may be a second old.
            metrics = Stamp(Signal.METRICS, *points, begin_ns, keep_ns=0)
        return _Unit(
            Stamp(Signal.TRACES, traces, count, begin_ns),
            Stamp(Signal.LOGS, *logs, begin_ns),
            metrics,
        )
