"""Spans that are in two files of the lake: which rows of the later one do not count.

The pipeline compares what it writes with what it wrote lately, and compaction compares a whole day.
Between them a span can be there twice, if it was sent again after a long time. Files never change,
so each is compared once, and only its rows of a time that an earlier file has too: those are few,
as a file usually has the newest spans.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.lake.layout import key_of
from penstock.pipeline.flush.identity import SPAN_IDENTITY, has_name, identities
from penstock.pipeline.flush.window import Window
from penstock.query.files import listed
from penstock.query.filters import TRACE_FILTERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection
    from numpy.typing import NDArray

    from penstock.lake.glance import ColdFile

ROW: Final = "file_row_number"
PROBED_TRACES: Final = 500
"""Filters are asked for no more than these: reading the ids is quicker then."""
_FOREVER: Final = (-(2**62), 2**62)


@dataclass(frozen=True, slots=True)
class _Compared:
    """What is known of a file: with which it was compared, and which of its rows they have."""

    others: frozenset[ColdFile]
    rows: dict[ColdFile, tuple[int, ...]]
    """By the file that has them too."""


class Doubles:
    """What was found of the files so far. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[ColdFile, _Compared] = {}
        self._last: tuple[tuple[ColdFile, ...], dict[str, frozenset[int]]] = ((), {})

    def rows(
        self, connection: DuckDBPyConnection, files: Sequence[ColdFile]
    ) -> dict[str, frozenset[int]]:
        """By file: the rows that do not count, because another of the files has them too."""
        asked = tuple(files)
        with self._lock:
            last, found = self._last
        if last == asked:
            return found
        pairs = _pairs(files)
        found = {}
        for newer, older in pairs:
            rows = self._of(connection, newer, older)
            if rows:
                found[newer.path] = rows
        with self._lock:
            self._last = (asked, found)
        return found

    def _of(
        self, connection: DuckDBPyConnection, newer: ColdFile, older: list[ColdFile]
    ) -> frozenset[int]:
        with self._lock:
            known = self._known.get(newer, _NOTHING)
        here = frozenset(older)
        if not known.rows.keys() <= here:
            known = _NOTHING  # what stays may have been decided anew when a file was replaced
        new = [file for file in older if file not in known.others]
        if new:
            found = dict(_compared(connection, newer, new))
            known = _Compared(known.others | here, known.rows | found)
            with self._lock:
                self._known[newer] = known
        return frozenset(row for rows in known.rows.values() for row in rows)


DOUBLES: Final = Doubles()
"""Of this process."""
_NOTHING: Final = _Compared(frozenset(), {})


def _pairs(files: Sequence[ColdFile]) -> list[tuple[ColdFile, list[ColdFile]]]:
    """Each file with the earlier ones that may have some of its spans.

    Files of one commit were compared with each other, and so were those of a compaction with all
    that it found; what a compaction wrote is as old as what it replaced.
    """
    if len(files) < 2:
        return []
    times = np.array([file.times_us or _FOREVER for file in files])
    ranks = np.array([file.sequence if _is_of_batch(file) else -1 for file in files])
    found = []
    for number in np.flatnonzero(ranks >= 0).tolist():
        first, last = times[number]
        older = (ranks < ranks[number]) & (times[:, 0] <= last) & (first <= times[:, 1])
        if older.any():
            found.append((files[number], [files[each] for each in np.flatnonzero(older).tolist()]))
    return found


def _is_of_batch(file: ColdFile) -> bool:
    return not (key_of(file.path) or "b").startswith("r")


def _compared(
    connection: DuckDBPyConnection, newer: ColdFile, older: list[ColdFile]
) -> list[tuple[ColdFile, tuple[int, ...]]]:
    """The rows that are in both, of each of the older files that has some."""
    suspects = _identified(connection, newer, older)
    if not suspects.num_rows:
        return []
    keys, numbers = identities("spans", suspects), suspects[ROW].to_numpy()
    traces = suspects["trace_id"].unique().to_pylist()
    if len(traces) <= PROBED_TRACES:
        older = TRACE_FILTERS.chosen(older, traces)
    found = []
    for file in older:
        both = numbers[_has(connection, file, newer, keys)]
        if len(both):
            found.append((file, tuple(both.tolist())))
    return found


def _has(
    connection: DuckDBPyConnection, file: ColdFile, newer: ColdFile, keys: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    window = Window.without_end()
    rows = _identified(connection, file, [newer])
    window.add(identities("spans", rows), 0.0)
    return window.knows(keys)


def _identified(connection: DuckDBPyConnection, file: ColdFile, others: list[ColdFile]) -> pa.Table:
    """The named spans of a file that have a time of one of the others."""
    times = [each.times_us or _FOREVER for each in others]
    first, last = min(each[0] for each in times), max(each[1] for each in times)
    columns = ", ".join((*SPAN_IDENTITY, ROW))
    sql = f"SELECT {columns} FROM {listed([file], rows=True)}"  # noqa: S608 - our own names
    if _FOREVER not in (*times, file.times_us or _FOREVER):
        sql += f" WHERE time BETWEEN make_timestamptz({first}) AND make_timestamptz({last})"
    rows = connection.sql(sql).to_arrow_table()
    return rows.filter(pa.array(has_name("spans", rows)))
