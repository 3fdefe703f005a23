"""What Penstock counts."""

from penstock.metrics import names
from penstock.metrics.registry import LogMetrics, Metrics, StoreMetrics, shared_metrics

__all__ = ["LogMetrics", "Metrics", "StoreMetrics", "names", "shared_metrics"]
