"""Bundles become rows of the lake's tables, without a loop over them.

    rows_of       the rows of a bundle
    row_batches   the rows of many, quicker, in batches that are never large

From bundles to rows: `rows`, `groups` and `join`, then the columns of each table (`spans`, `logs`,
`metrics`, `points`) out of parts that they share, then `batches`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.lake.rows.rows import row_batches as row_batches
    from penstock.lake.rows.rows import rows_of as rows_of

_HOMES = {"row_batches": "rows", "rows_of": "rows"}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """With its first use: Spark plans with origins alone, in several processes."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"penstock.lake.rows.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'penstock.lake.rows' has no attribute {name!r}")
