"""Spark looks for modules of such names: where Penstock is installed, it has its format.

Here the format is put together: what reads segments, and what finds rows in all tiers.
"""

from __future__ import annotations

from typing import Any

from penstock.pipeline.source import PenstockSource


def _share(*arguments: Any, **named: Any) -> Any:
    from penstock.tiers.shares import share  # DuckDB is imported where it is needed

    return share(*arguments, **named)


class DefaultSource(PenstockSource):
    """`spark.read.format("penstock")`."""

    share = staticmethod(_share)


__all__ = ["DefaultSource"]
