"""What Penstock counts."""

from penstock.metrics import names
from penstock.metrics.registry import LogMetrics, Metrics, shared_metrics

__all__ = ["LogMetrics", "Metrics", "names", "shared_metrics"]
