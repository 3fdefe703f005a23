"""Counts what the packages do, for Prometheus to read."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram

from penstock.metrics import names

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMMIT_BUCKETS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)

_LOG_COUNTERS: Mapping[str, str] = {
    names.LOG_MESSAGES: "messages made durable",
    names.LOG_BYTES: "bytes of frames made durable",
    names.LOG_COMMITS: "group commits",
    names.LOG_ROTATIONS: "files finished",
    names.LOG_REMOVED_FILES: "files that retention removed",
    names.LOG_LOST_MESSAGES: "messages found unreadable by recovery",
    names.LOG_TORN_BYTES: "bytes of interrupted writes dropped by recovery",
    names.LOG_DISK_FULL: "commits refused for want of space",
    names.LOG_POISONED: "logs stopped by a failed write or fsync",
    names.LOG_CHECKPOINT_FAILURES: "checkpoints that could not be written",
}


class Metrics:
    """One registry with all of Penstock's metrics in it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters = {
            name: Counter(name, text, ["topic"], registry=self.registry)
            for name, text in _LOG_COUNTERS.items()
        }
        self._commit_seconds = Histogram(
            names.LOG_COMMIT_SECONDS,
            "time to write and sync one group commit",
            buckets=_COMMIT_BUCKETS,
            registry=self.registry,
        )

    def for_log(self, topic: str) -> LogMetrics:
        """The part that one log counts in."""
        return LogMetrics(self._counters, self._commit_seconds, topic)

    def value(self, name: str, **labels: str) -> float:
        """The present value of one counter; 0 before its first count."""
        return self.registry.get_sample_value(name, labels) or 0.0


class LogMetrics:
    """What one log counts. An idle log has no counters yet and costs no memory for them."""

    __slots__ = ("_bound", "_commit_seconds", "_counters", "_topic")

    def __init__(self, counters: Mapping[str, Counter], seconds: Histogram, topic: str) -> None:
        self._counters = counters
        self._commit_seconds = seconds
        self._topic = topic
        self._bound: dict[str, Counter] = {}

    def count(self, name: str, amount: float = 1) -> None:
        """Adds to the counter `name`."""
        counter = self._bound.get(name)
        if counter is None:
            counter = self._bound[name] = self._counters[name].labels(self._topic)
        counter.inc(amount)

    def committed(self, messages: int, size: int, seconds: float) -> None:
        """Counts one group commit."""
        self.count(names.LOG_COMMITS)
        self.count(names.LOG_MESSAGES, messages)
        self.count(names.LOG_BYTES, size)
        self._commit_seconds.observe(seconds)


@cache
def shared_metrics() -> Metrics:
    """The metrics of this process."""
    return Metrics()
