"""Bundles become rows of the lake's tables, without a loop over them.

    rows_of       the rows of a bundle
    row_batches   the rows of many, quicker, in batches that are never large

From bundles to rows: `rows`, `groups` and `join`, then the columns of each table (`spans`, `logs`,
`metrics`, `points`) out of parts that they share, then `batches`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy import lazily

if TYPE_CHECKING:
    from penstock.lake.rows.rows import row_batches as row_batches
    from penstock.lake.rows.rows import rows_of as rows_of
else:
    __getattr__ = lazily(
        __name__,
        {
            "rows": "row_batches rows_of",
        },
    )

__all__ = ["row_batches", "rows_of"]
