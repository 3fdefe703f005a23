"""Leaves out of the fresh rows what an older tier has: cold before warm, warm before hot.

A span that was sent again has the time that it had, so only files of the lake that overlap the
times of the fresh rows can hold it, and only rows of these times.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.lake.identity import SPAN_IDENTITY, has_name, identities, repeated
from penstock.lake.reader import spans_within
from penstock.lake.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.lake.glance import ColdFile
    from penstock.tiers.pieces import Piece

_FEW_ROWS: Final = 5000
_lock: Final = threading.Lock()
_last: Final[dict[tuple[str, bool, int], tuple[tuple[Piece, ...], int, pa.Table]]] = {}
"""Of each table: from which pieces the rows were put together last, and what became of them."""


def without_repeats(
    pieces: Sequence[Piece], files: Sequence[ColdFile], check: Callable[[], None] = lambda: None
) -> pa.Table | None:
    """The rows of the pieces, each once, and none that is in the files; None: there are none.

    Earlier pieces come first. Spans only are looked for in the files. `check` is called before
    each of them, and may raise.
    """
    pieces = tuple(piece for piece in pieces if piece.rows.num_rows)
    if not pieces:
        return None
    if pieces[0].table == "spans" and files:
        compare(pieces, files, check)
    return _put_together(pieces, bool(files))


def _put_together(pieces: tuple[Piece, ...], in_lake: bool) -> pa.Table:
    if sum(piece.rows.num_rows for piece in pieces) < _FEW_ROWS:
        return _once(pieces, in_lake)  # not at the cost of forgetting many
    known = sum(int(piece.in_lake.sum()) for piece in pieces) if in_lake else -1
    name = (pieces[0].table, in_lake, pieces[0].rows.num_columns)
    with _lock:
        last = _last.get(name)
    if last is not None and last[1] == known and _are_same(last[0], pieces):
        return last[2]
    rows = _once(pieces, in_lake)
    with _lock:
        _last[name] = (pieces, known, rows)
    return rows


def _are_same(some: tuple[Piece, ...], others: tuple[Piece, ...]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def _once(pieces: tuple[Piece, ...], in_lake: bool) -> pa.Table:
    common = [
        name
        for name in pieces[0].rows.column_names
        if all(name in piece.rows.column_names for piece in pieces)
    ]
    rows = pa.concat_tables([piece.rows.select(common) for piece in pieces])
    keys = np.concatenate([piece.keys for piece in pieces])
    unwanted = repeated(pieces[0].table, rows, keys)
    if in_lake:
        unwanted |= np.concatenate([piece.in_lake for piece in pieces])
    return rows.filter(pa.array(~unwanted)) if unwanted.any() else rows


def compare(
    pieces: Sequence[Piece], files: Sequence[ColdFile], check: Callable[[], None] = lambda: None
) -> None:
    """Finds the rows of the pieces that are in the files, of those that were not looked at yet."""
    for piece in pieces:
        new = [file for file in _overlapping(piece, files) if file.path not in piece.compared]
        if not new:
            continue
        window = Window()
        for file in new:
            check()
            window.add(identities("spans", named_spans(file, piece.times_us)))
        found = window.knows(piece.keys)
        with _lock:
            # Invariant: whoever finds a file in `compared` finds its rows in `in_lake`.
            piece.in_lake = piece.in_lake | found
            piece.compared |= {file.path for file in new}


def named_spans(file: ColdFile, times_us: tuple[int, int] | None) -> pa.Table:
    """The spans of a file that are known by their ids, and have one of these times."""
    rows = spans_within(file, SPAN_IDENTITY, times_us)
    return rows.filter(pa.array(has_name("spans", rows)))


def _overlapping(piece: Piece, files: Sequence[ColdFile]) -> list[ColdFile]:
    if piece.times_us is None:
        return list(files)
    first, last = piece.times_us
    return [
        file
        for file in files
        if file.times_us is None or (file.times_us[0] <= last and first <= file.times_us[1])
    ]
