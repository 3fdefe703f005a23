"""What makes a row the same as another, and which of them stays.

A span is its namespace, trace id and span id: whoever sends it again means the same one. A log
record or a data point has no name, nor has a span without ids; two that are equal in everything
are the same if they came in different requests, since one request may well tell of two equal
events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.hashing import hash_columns, mixed
from penstock.lake.schemas import ORIGIN, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from penstock.lake.hashing import Hashes

SPAN_IDENTITY: Final = ("namespace", "trace_id", "span_id")
_NO_IDS: Final = {"trace_id": "0" * 32, "span_id": "0" * 16}
_OWN_TIMES: Final = {
    "spans": ("start_time_unix_nano",),
    "logs": ("time_unix_nano", "observed_time_unix_nano"),
    "metrics": ("time_unix_nano",),
}
_DERIVED: Final = ("time", "observed_time", "date", "service_name")


def identities(table: str, rows: pa.Table) -> Hashes:
    """What rows have in common that are the same; in the order of the rows."""
    if table != "spans":
        return _hashed(rows, _content(table))
    keys = _hashed(rows, SPAN_IDENTITY)
    nameless = ~has_name(table, rows)
    if nameless.any():
        keys[nameless] = _hashed(rows.filter(pa.array(nameless)), _content(table))
    return keys


def has_name(table: str, rows: pa.Table) -> NDArray[np.bool_]:
    """The spans with ids that are ids."""
    if table != "spans":
        return np.zeros(rows.num_rows, bool)
    found = np.ones(rows.num_rows, bool)
    for column, nothing in _NO_IDS.items():
        found &= pc.fill_null(pc.not_equal(rows[column], nothing), False).to_numpy()
    return found


def lasts(table: str, rows: pa.Table) -> NDArray[np.bool_]:
    """The rows that are known again after their batch: those with a name or a time of their own.

    Two that are equal in everything and say not even when they were made may well be two.
    """
    found = has_name(table, rows)
    for column in _OWN_TIMES[table]:
        found |= pc.fill_null(pc.not_equal(rows[column], 0), False).to_numpy()
    return found


def of_messages(rows: pa.Table, keys: Hashes) -> Hashes:
    """The identities within the request that each row came in."""
    return mixed(keys + _hashed(rows, ORIGIN))


def repeated(table: str, rows: pa.Table, keys: Hashes) -> NDArray[np.bool_]:
    """The rows that are the same as an earlier one of these."""
    if not _may_repeat(keys):
        return np.zeros(len(keys), bool)
    order = np.lexsort((np.arange(len(keys)), keys[:, 1], keys[:, 0]))
    same = np.zeros(len(keys), bool)
    same[1:] = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
    if same.any():
        same &= has_name(table, rows)[order] | _from_another_message(rows, order, same)
    found = np.zeros(len(keys), bool)
    found[order] = same
    return found


def _may_repeat(keys: Hashes) -> bool:
    """Sorting half of the bits, and not where they come from, is a tenth of the work."""
    half = np.sort(keys[:, 0])
    return bool((half[1:] == half[:-1]).any())


def _from_another_message(
    rows: pa.Table, order: NDArray[np.intp], same: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """In the sorted order: whether a row came in another message than the first of its run."""
    sent = _hashed(rows, ORIGIN)[order]
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(same))))
    others: NDArray[np.bool_] = (sent != sent[first]).any(axis=1)
    return others


def _content(table: str) -> list[str]:
    """Not by the rows' own columns: those of a file may be more, and in another order."""
    return [name for name in TABLES[table].names if name not in (*ORIGIN, *_DERIVED)]


def _hashed(rows: pa.Table, names: Iterable[str]) -> Hashes:
    return hash_columns([_only_chunk(rows[name]) for name in names])


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
