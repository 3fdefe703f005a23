"""Bundles become rows of the lake's tables, without a loop over them.

    Origin        where a bundle was stored
    rows_of       the rows of a bundle
    row_batches   the rows of many, quicker, in batches that are never large

From bundles to rows: `rows`, `groups` and `join`, then the columns of each table (`spans`, `logs`,
`metrics`, `points`) out of parts that they share, then `batches`.
"""

from __future__ import annotations

from penstock.lake.rows.origin import Origin
from penstock.lake.rows.rows import row_batches, rows_of

__all__ = ["Origin", "row_batches", "rows_of"]
