"""What was sent, what became of it, and how long it took."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEPS: Final = 50.0
"""Steps of latency to a factor of e: each is 2 % wide."""


@dataclass(slots=True)
class Tally:
    """The counts of one process, or of several. Records and bytes are those acknowledged."""

    requests: int = 0
    acknowledged: int = 0
    refused: int = 0
    retried: int = 0
    spans: int = 0
    logs: int = 0
    data_points: int = 0
    rejected: int = 0
    """Records that the server did not take out of acknowledged requests."""
    bytes: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of the sending processes."""
    first_refusal: str = ""
    latencies: Counter[int] = field(default_factory=Counter)
    """Requests by the step of their latency."""

    def took(self, seconds: float) -> None:
        """Counts the latency of an acknowledged request."""
        self.latencies[math.ceil(math.log(max(seconds, 1e-6)) * _STEPS)] += 1

    def latency_ms(self, quantile: float) -> float | None:
        """The latency that this part of the requests does not exceed; None where there are none."""
        left = quantile * self.latencies.total()
        for step in sorted(self.latencies):
            left -= self.latencies[step]
            if left <= 0:
                return round(math.exp(step / _STEPS) * 1000, 3)
        return None

    def rate(self, count: int) -> float:
        """So many a second."""
        return round(count / self.seconds, 1) if self.seconds else 0.0

    def document(self) -> dict[str, Any]:
        """For programs."""
        counts = asdict(self)
        del counts["latencies"]
        return counts | {
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "spans_per_second": self.rate(self.spans),
            "requests_per_second": self.rate(self.acknowledged),
            "bytes_per_second": self.rate(self.bytes),
            "latency_p50_ms": self.latency_ms(0.5),
            "latency_p99_ms": self.latency_ms(0.99),
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, for `from_json`."""
        return asdict(self) | {"latencies": {str(k): v for k, v in self.latencies.items()}}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Tally:
        """What `to_json` gave."""
        steps = {int(step): count for step, count in document["latencies"].items()}
        return cls(**{**document, "latencies": Counter(steps)})

    @classmethod
    def together(cls, tallies: Iterable[Tally]) -> Tally:
        """Of processes that ran side by side."""
        whole = cls()
        for tally in tallies:
            for name in _ADDED:
                setattr(whole, name, getattr(whole, name) + getattr(tally, name))
            whole.seconds = max(whole.seconds, tally.seconds)
            whole.first_refusal = whole.first_refusal or tally.first_refusal
            whole.latencies += tally.latencies
        return whole


_ADDED: Final = (
    "requests",
    "acknowledged",
    "refused",
    "retried",
    "spans",
    "logs",
    "data_points",
    "rejected",
    "bytes",
    "cpu_seconds",
)
