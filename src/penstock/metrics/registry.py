"""Counts what the packages do, for Prometheus to read.

Counting is adding to a number in memory. `prometheus_client` turns the numbers into its text format
when somebody asks, so that the hot path pays nothing for it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from penstock.metrics import names
from penstock.model.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

COMMIT_BUCKETS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)


class Histogram:
    """How often something took how long."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(COMMIT_BUCKETS_S) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one."""
        self.buckets[bisect_left(COMMIT_BUCKETS_S, seconds)] += 1
        self.seconds += seconds


class LogMetrics:
    """What one log counts. Each name is counted by one thread at a time; anyone may read."""

    __slots__ = ("commits", "counts", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.counts = dict.fromkeys(names.LOG_COUNTERS, 0)
        self.commits = Histogram()

    def count(self, name: str, amount: int = 1) -> None:
        """Adds to the counter `name`."""
        self.counts[name] += amount

    def committed(self, messages: int, size: int, seconds: float) -> None:
        """Counts one group commit."""
        counts = self.counts
        counts[names.LOG_COMMITS] += 1
        counts[names.LOG_MESSAGES] += messages
        counts[names.LOG_BYTES] += size
        self.commits.observe(seconds)


Labels: TypeAlias = tuple[str, ...]
Gauges: TypeAlias = "Callable[[], Iterable[tuple[str, Labels, float]]]"


class StoreMetrics:
    """What one store counts, and whom to ask for what it knows anyway."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.counts: dict[tuple[str, Labels], int] = {}
        self.seals = Histogram()
        self.gauges: Gauges | None = None

    def count(self, name: str, amount: int = 1, labels: Labels = ()) -> None:
        """Adds to the counter `name` with these labels beside the topic."""
        key = (name, labels)
        self.counts[key] = self.counts.get(key, 0) + amount

    def value(self, name: str, labels: Labels = ()) -> float:
        """The present value of a counter or a gauge."""
        if (name, labels) in self.counts:
            return self.counts[name, labels]
        gauges = self.gauges() if self.gauges is not None else ()
        return next((v for n, found, v in gauges if (n, found) == (name, labels)), 0)


class QueueMetrics:
    """What the producers and the consumer of one queue count in this process."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.counts = dict.fromkeys(names.QUEUE_COUNTERS, 0)
        self.appends = Histogram()
        self.gauges: Callable[[], dict[str, float]] | None = None
        """Asked for names and values; the consumer knows them."""

    def count(self, name: str, amount: int = 1) -> None:
        """Adds to the counter `name`."""
        self.counts[name] += amount

    def appended(self, batches: int, size: int, seconds: float) -> None:
        """Counts one append."""
        self.counts[names.QUEUE_APPENDS] += 1
        self.counts[names.QUEUE_ENQUEUED_BATCHES] += batches
        self.counts[names.QUEUE_ENQUEUED_BYTES] += size
        self.appends.observe(seconds)


class Metrics:
    """Everything that is counted in one process, as a Prometheus collector."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[str, LogMetrics] = {}
        self._stores: dict[str, StoreMetrics] = {}
        self._queues: dict[str, QueueMetrics] = {}
        self._archives: dict[str, Callable[[], dict[str, float]]] = {}

    def for_log(self, topic: str) -> LogMetrics:
        """The part that one log counts in; a log that is opened again counts on."""
        with self._lock:
            return self._logs.setdefault(topic, LogMetrics(topic))

    def for_store(self, topic: str) -> StoreMetrics:
        """The part that one store counts in; a store that is opened again counts on."""
        with self._lock:
            return self._stores.setdefault(topic, StoreMetrics(topic))

    def for_queue(self, queue: str) -> QueueMetrics:
        """The part that one queue's producers and consumer count in."""
        with self._lock:
            return self._queues.setdefault(queue, QueueMetrics(queue))

    def watch_archive(self, topic: str, values: Callable[[], dict[str, float]]) -> None:
        """Asks for what the archive of a topic has counted whenever metrics are asked for."""
        with self._lock:
            self._archives[topic] = values

    def value(self, name: str, topic: str) -> int:
        """The present value of one counter."""
        found = self._logs.get(topic)
        return found.counts[name] if found is not None else 0

    def collect(self) -> Iterator[Metric]:
        """What `prometheus_client` asks a collector for."""
        with self._lock:
            logs = sorted(self._logs.values(), key=lambda log: log.topic)
            stores = sorted(self._stores.values(), key=lambda store: store.topic)
            queues = sorted(self._queues.values(), key=lambda queue: queue.queue)
            archives = sorted(self._archives.items())
        yield from _of_logs(logs)
        yield from _of_stores(stores)
        yield from _of_queues(queues)
        yield from _of_archives(archives)

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


def _of_logs(logs: list[LogMetrics]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, text in names.LOG_COUNTERS.items():
        family = CounterMetricFamily(name.removesuffix("_total"), text, labels=["topic"])
        for log in logs:
            family.add_metric([printable(log.topic)], log.counts[name])
        yield family
    name = names.LOG_COMMIT_SECONDS
    yield _histogram(name, names.LOG_HISTOGRAMS[name], [log.commits for log in logs])


def _of_stores(stores: list[StoreMetrics]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    found: dict[str, list[tuple[list[str], float]]] = {}
    for store in stores:
        counted = [(name, labels, value) for (name, labels), value in list(store.counts.items())]
        gauges = store.gauges() if store.gauges is not None else ()
        for name, labels, value in [*counted, *gauges]:
            found.setdefault(name, []).append(([store.topic, *labels], value))
    for table, kind in (
        (names.STORE_COUNTERS, CounterMetricFamily),
        (names.STORE_GAUGES, GaugeMetricFamily),
    ):
        for name, (text, labels) in table.items():
            family = kind(name.removesuffix("_total"), text, labels=["topic", *labels])
            for values, number in found.get(name, ()):
                family.add_metric([printable(value) for value in values], number)
            yield family
    name = names.STORE_SEAL_SECONDS
    yield _histogram(name, names.STORE_HISTOGRAMS[name], [store.seals for store in stores])


def _of_queues(queues: list[QueueMetrics]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, text in names.QUEUE_COUNTERS.items():
        counter = CounterMetricFamily(name.removesuffix("_total"), text, labels=["queue"])
        for queue in queues:
            counter.add_metric([printable(queue.queue)], queue.counts[name])
        yield counter
    known = [(each.queue, each.gauges()) for each in queues if each.gauges is not None]
    for name, text in names.QUEUE_GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=["queue"])
        for label, values in known:
            if name in values:
                gauge.add_metric([printable(label)], values[name])
        yield gauge
    name = names.QUEUE_APPEND_SECONDS
    yield _histogram(name, names.QUEUE_HISTOGRAMS[name], [queue.appends for queue in queues])


def _of_archives(archives: list[tuple[str, Callable[[], dict[str, float]]]]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    known = [(topic, values()) for topic, values in archives]
    for name, text in names.ARCHIVE_COUNTERS.items():
        counter = CounterMetricFamily(name.removesuffix("_total"), text, labels=["topic"])
        for topic, values in known:
            counter.add_metric([printable(topic)], values[name])
        yield counter
    for name, text in names.ARCHIVE_GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=["topic"])
        for topic, values in known:
            gauge.add_metric([printable(topic)], values[name])
        yield gauge


def _histogram(name: str, text: str, parts: list[Histogram]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, text)
    bounds = [*map(str, COMMIT_BUCKETS_S), "+Inf"]
    totals = [sum(column) for column in zip(*(part.buckets for part in parts), strict=True)]
    running, buckets = 0, list[tuple[str, float]]()
    for bound, count in zip(bounds, totals or [0] * len(bounds), strict=True):
        running += count
        buckets.append((bound, running))
    family.add_metric([], buckets, sum(part.seconds for part in parts))
    return family


@cache
def shared_metrics() -> Metrics:
    """The metrics of this process."""
    return Metrics()
