"""What the services of the shop measure, as an OTLP request with marks: every kind of metric."""

from __future__ import annotations

import bisect
import math
from typing import TYPE_CHECKING, Any, Final

from penstock.load.calls import Kind
from penstock.load.requests import Grouped, Resources, set_attributes
from penstock.load.services import SERVICES
from penstock.load.shop import MS
from penstock.load.stamps import WINDOW_NS, marked_count, marked_time
from penstock.otel.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from penstock.load.services import Service
    from penstock.load.shop import Span

_DELTA, _CUMULATIVE = 1, 2
_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0)
_SCALE: Final = 3
_QUANTILES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_RUNTIME: Final = "runtime"


def metric_request(
    spans: Sequence[Span], described: Resources, random: Random, begin_ns: int
) -> tuple[bytes, int]:
    """One collection of every instrument, and how many data points it has.

    `begin_ns`: since when counters count.
    """
    request = Grouped(Signal.METRICS, described)
    points = _Points(request, begin_ns, random)
    for service in SERVICES:
        answered = [
            span for span in spans if span.service is service and span.call.kind is Kind.SERVER
        ]
        points.runtime(service)
        points.calls(service, answered)
    return request.encoded(), points.count


class _Points:
    def __init__(self, request: Grouped, begin_ns: int, random: Random) -> None:
        self._request = request
        self._begin_ns = begin_ns
        self._random = random
        self.count = 0

    def runtime(self, service: Service) -> None:
        """How the process and its machine are."""
        random = self._random
        busy = self._metric(service, "process.cpu.utilization", "1", _RUNTIME).gauge
        for mode in ("user", "system"):
            self._now(busy.data_points.add(as_double=random.random() / 2), {"cpu.mode": mode})
        files = self._metric(service, "process.open_file_descriptor.count", "{count}", _RUNTIME)
        self._now(files.gauge.data_points.add(as_int=random.randrange(20, 400)))
        memory = self._sum(service, "process.memory.usage", "By", monotonic=False)
        self._since_begin(memory.add(as_int=random.randrange(2**26, 2**29)))
        traffic = self._sum(service, "process.network.io", "By", monotonic=True)
        for direction, rate in (("receive", 210_000), ("transmit", 450_000)):
            point = traffic.add(as_int=marked_count(rate))
            self._since_begin(point, {"network.io.direction": direction})
        pauses = self._metric(service, f"{service.language}_gc_duration_seconds", "s", _RUNTIME)
        self._pauses(pauses.summary.data_points.add())

    def calls(self, service: Service, answered: Sequence[Span]) -> None:
        """What the service answered, by operation."""
        active = self._sum(service, "http.server.active_requests", "{request}", monotonic=False)
        self._since_begin(active.add(as_int=self._random.randrange(40)))
        served = self._sum(service, "shop.requests", "{request}", monotonic=True)
        by_name: dict[str, list[Span]] = {}
        for span in answered:
            by_name.setdefault(span.call.name, []).append(span)
        for name in by_name:
            point = served.add(as_int=marked_count(20))
            self._since_begin(point, {"shop.operation": name})
        if not by_name:
            return
        buckets = self._metric(service, "http.server.request.duration", "s", "http").histogram
        buckets.aggregation_temporality = _DELTA
        exact = self._metric(service, "shop.operation.duration", "s", "http").exponential_histogram
        exact.aggregation_temporality = _DELTA
        for name, spans in by_name.items():
            self._histogram(buckets.data_points.add(), name, spans)
            self._exponential(exact.data_points.add(), name, spans)

    def _metric(self, service: Service, name: str, unit: str, scope: str) -> Any:
        metric = self._request.records(service, scope).add(name=name, unit=unit)
        metric.description = f"{name.replace('.', ' ').replace('_', ' ')} of {service.name}"
        return metric

    def _sum(self, service: Service, name: str, unit: str, *, monotonic: bool) -> Any:
        metric = self._metric(service, name, unit, _RUNTIME)
        metric.sum.is_monotonic = monotonic
        metric.sum.aggregation_temporality = _CUMULATIVE
        return metric.sum.data_points

    def _now(self, point: Any, attributes: Any = None) -> None:
        point.time_unix_nano = marked_time(WINDOW_NS)
        set_attributes(point.attributes, attributes or {})
        self.count += 1

    def _since_begin(self, point: Any, attributes: Any = None) -> None:
        point.start_time_unix_nano = self._begin_ns
        self._now(point, attributes)

    def _lately(self, point: Any, name: str, seconds: Sequence[float]) -> None:
        point.start_time_unix_nano = marked_time(0)
        point.count, point.sum = len(seconds), sum(seconds)
        point.min, point.max = min(seconds), max(seconds)
        self._now(point, {"shop.operation": name})

    def _histogram(self, point: Any, name: str, spans: Sequence[Span]) -> None:
        seconds = _seconds(spans)
        counts = [0] * (len(_BOUNDS_S) + 1)
        for value in seconds:
            counts[bisect.bisect_left(_BOUNDS_S, value)] += 1
        point.explicit_bounds.extend(_BOUNDS_S)
        point.bucket_counts.extend(counts)
        self._lately(point, name, seconds)
        _add_exemplar(point, max(spans, key=lambda span: span.end_ns - span.start_ns))

    def _exponential(self, point: Any, name: str, spans: Sequence[Span]) -> None:
        """Bucket i holds what lies in (2^(i/8), 2^((i+1)/8)]."""
        seconds = _seconds(spans)
        indices = [math.ceil(math.log2(value) * 2**_SCALE) - 1 for value in seconds]
        point.scale, point.positive.offset = _SCALE, min(indices)
        counts = [0] * (max(indices) - min(indices) + 1)
        for index in indices:
            counts[index - min(indices)] += 1
        point.positive.bucket_counts.extend(counts)
        self._lately(point, name, seconds)

    def _pauses(self, point: Any) -> None:
        durations = sorted(self._random.lognormvariate(-8, 1) for _ in _QUANTILES)
        for quantile, value in zip(_QUANTILES, durations, strict=True):
            point.quantile_values.add(quantile=quantile, value=value)
        point.count = self._random.randrange(100, 1000)
        point.sum = point.count * durations[2]
        self._since_begin(point)


def _seconds(spans: Sequence[Span]) -> list[float]:
    return [max(1, span.end_ns - span.start_ns) / (1000 * MS) for span in spans]


def _add_exemplar(point: Any, span: Span) -> None:
    exemplar = point.exemplars.add(trace_id=span.trace_id, span_id=span.span_id)
    exemplar.time_unix_nano = marked_time(span.end_ns)
    exemplar.as_double = _seconds([span])[0]
    set_attributes(exemplar.filtered_attributes, {"service.name": span.service.name})
