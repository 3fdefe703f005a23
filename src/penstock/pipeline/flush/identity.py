"""What makes a row the same as another, and which of them stays.

A span is its namespace, trace id and span id: whoever sends it again means the same one. A log
record or a data point has no name; two that are equal in everything are the same if they came in
different requests, since one request may well tell of two equal events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.pipeline.flush.hashing import hash_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.pipeline.flush.hashing import Hashes

SPAN_IDENTITY: Final = ("namespace", "trace_id", "span_id")
_ORIGIN: Final = ("_topic", "_partition", "_offset")
_DERIVED: Final = ("time", "observed_time", "date", "service_name")


def identities(table: str, rows: pa.Table) -> Hashes:
    """What rows have in common that are the same; in the order of the rows."""
    rows = rows.combine_chunks()
    names = SPAN_IDENTITY if table == "spans" else _content(rows)
    return hash_columns([_only_chunk(rows[name]) for name in names])


def messages(rows: pa.Table) -> Hashes:
    """Which request each row came in."""
    rows = rows.combine_chunks()
    return hash_columns([_only_chunk(rows[name]) for name in _ORIGIN])


def repeated(table: str, rows: pa.Table, keys: Hashes) -> NDArray[np.bool_]:
    """The rows that are the same as an earlier one of these."""
    order = np.lexsort((np.arange(len(keys)), keys[:, 1], keys[:, 0]))
    same = np.zeros(len(keys), bool)
    same[1:] = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
    if table != "spans" and same.any():
        same &= _from_another_message(rows, order, same)
    found = np.zeros(len(keys), bool)
    found[order] = same
    return found


def _from_another_message(
    rows: pa.Table, order: NDArray[np.intp], same: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """In the sorted order: whether a row came in another message than the first of its run."""
    sent = messages(rows)[order]
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(same))))
    others: NDArray[np.bool_] = (sent != sent[first]).any(axis=1)
    return others


def _content(rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if name not in (*_ORIGIN, *_DERIVED)]


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
