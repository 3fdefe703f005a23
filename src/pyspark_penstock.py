"""Spark looks for modules of such names: where Penstock is installed, it has its format."""

from penstock.pipeline.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
