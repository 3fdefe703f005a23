"""Counts what the packages do, for Prometheus to read.

Counting is adding to a number in memory. `prometheus_client` turns the numbers into its text format
when somebody asks, so that the hot path pays nothing for it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING

from penstock.metrics import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

COMMIT_BUCKETS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)


class LogMetrics:
    """What one log counts. Each name is counted by one thread at a time; anyone may read."""

    __slots__ = ("commit_buckets", "commit_seconds", "counts", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.counts = dict.fromkeys(names.LOG_COUNTERS, 0)
        self.commit_buckets = [0] * (len(COMMIT_BUCKETS_S) + 1)
        self.commit_seconds = 0.0

    def count(self, name: str, amount: int = 1) -> None:
        """Adds to the counter `name`."""
        self.counts[name] += amount

    def committed(self, messages: int, size: int, seconds: float) -> None:
        """Counts one group commit."""
        counts = self.counts
        counts[names.LOG_COMMITS] += 1
        counts[names.LOG_MESSAGES] += messages
        counts[names.LOG_BYTES] += size
        self.commit_buckets[bisect_left(COMMIT_BUCKETS_S, seconds)] += 1
        self.commit_seconds += seconds


class Metrics:
    """Everything that is counted in one process, as a Prometheus collector."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[str, LogMetrics] = {}

    def for_log(self, topic: str) -> LogMetrics:
        """The part that one log counts in; a log that is opened again counts on."""
        with self._lock:
            return self._logs.setdefault(topic, LogMetrics(topic))

    def value(self, name: str, topic: str) -> int:
        """The present value of one counter."""
        found = self._logs.get(topic)
        return found.counts[name] if found is not None else 0

    def collect(self) -> Iterator[Metric]:
        """What `prometheus_client` asks a collector for."""
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        with self._lock:
            logs = sorted(self._logs.values(), key=lambda log: log.topic)
        for name, text in names.LOG_COUNTERS.items():
            family = CounterMetricFamily(name.removesuffix("_total"), text, labels=["topic"])
            for log in logs:
                family.add_metric([log.topic], log.counts[name])
            yield family
        histogram = HistogramMetricFamily(
            names.LOG_COMMIT_SECONDS, names.LOG_HISTOGRAMS[names.LOG_COMMIT_SECONDS]
        )
        totals = [sum(column) for column in zip(*(log.commit_buckets for log in logs), strict=True)]
        running, buckets = 0, list[tuple[str, float]]()
        bounds = [*map(str, COMMIT_BUCKETS_S), "+Inf"]
        for bound, count in zip(bounds, totals or [0] * len(bounds), strict=True):
            running += count
            buckets.append((bound, running))
        histogram.add_metric([], buckets, sum(log.commit_seconds for log in logs))
        yield histogram

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


@cache
def shared_metrics() -> Metrics:
    """The metrics of this process."""
    return Metrics()
