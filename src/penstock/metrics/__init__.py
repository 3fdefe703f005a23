"""What Penstock counts."""

from penstock.metrics import names
from penstock.metrics.registry import (
    LogMetrics,
    Metrics,
    QueueMetrics,
    StoreMetrics,
    shared_metrics,
)

__all__ = ["LogMetrics", "Metrics", "QueueMetrics", "StoreMetrics", "names", "shared_metrics"]
