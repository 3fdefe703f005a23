"""What Penstock counts."""

from penstock.metrics.registry import LogMetrics, Metrics, shared_metrics

__all__ = ["LogMetrics", "Metrics", "shared_metrics"]
