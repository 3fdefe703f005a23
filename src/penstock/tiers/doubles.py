"""Spans that are in two files of the lake: which rows of the later one do not count.

The pipeline compares what it writes with what it wrote lately, and compaction compares a whole day.
Between them a span can be there twice, if it was sent again after a long time. Files never change,
so each is compared once, and only its rows of a time that an earlier file has too: those are few,
as a file usually has the newest spans. What was compared is recorded beside the table (`compared`),
so that a process compares only what came since.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.lake.glance import glance
from penstock.lake.identity import identities
from penstock.lake.layout import key_of
from penstock.lake.reader import rows_within
from penstock.lake.shown import ROW
from penstock.lake.trace_filters import TRACE_FILTERS
from penstock.lake.window import Window
from penstock.tiers.compared import TABLE, Record, names_of
from penstock.tiers.repeats import named_spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.lake.glance import ColdFile, Glance
    from penstock.lake.settings import LakeSettings

PROBED_TRACES: Final = 500
"""Filters are asked for no more than these: reading the ids is quicker then."""
_FOREVER: Final = (-(2**62), 2**62)
_WRITTEN_S: Final = 5.0
"""What a long comparison has found is recorded so often."""


def record_doubles(lake: LakeSettings, is_over: Callable[[], bool] = lambda: False) -> None:
    """Compares what came to the lake since somebody last did, so that no question has to.

    Stops when it `is_over`, and has recorded what it found until then.
    """

    def check() -> None:
        if is_over():
            raise _Over

    table = glance(lake, TABLE)
    if len(table.files) > 1:
        with contextlib.suppress(_Over):
            DOUBLES.record(lake, table, check)


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
        self._last: tuple[object, dict[str, frozenset[int]]] = ((), {})

    def rows(
        self,
        lake: LakeSettings,
        table: Glance,
        files: Sequence[ColdFile],
        check: Callable[[], None] = lambda: None,
    ) -> dict[str, frozenset[int]]:
        """By file: the rows that do not count, because another file of the table has them too.

        `files` are those of the table that are read. `check` is called before each comparison, and
        may raise: what was compared by then need not be compared again.
        """
        asked = (table.identity, table.files, tuple(files))
        with self._lock:
            last, found = self._last
        if last == asked:
            return found
        found = self._found(lake, table, files, check) if len(files) > 1 else {}
        with self._lock:
            self._last = (asked, found)
        return found

    def record(
        self,
        lake: LakeSettings,
        table: Glance,
        check: Callable[[], None],
    ) -> None:
        """Compares the files of a table that no record has, and records them."""
        record, names = Record.read(lake, table), names_of(lake, table.files)
        is_new = np.array([name not in record.files for name in names])
        if is_new.any():
            present = dict(zip(table.files, names, strict=True))
            self._extend(lake, table, record, present, is_new, check)

    def _found(
        self,
        lake: LakeSettings,
        table: Glance,
        files: Sequence[ColdFile],
        check: Callable[[], None],
    ) -> dict[str, frozenset[int]]:
        record = Record.read(lake, table)
        present = dict(zip(table.files, names_of(lake, table.files), strict=True))
        names = [present[file] for file in files]
        is_new = np.array([name not in record.files for name in names])
        if is_new.any() and len(files) == len(table.files):
            self._extend(lake, table, record, present, is_new, check)
            is_new[:] = False
        here = set(present.values())
        rows = {
            file.path: set(record.doubles(name, here))
            for file, name in zip(files, names, strict=True)
            if name in record.rows
        }
        for newer, older in _pairs(files, is_new).items():
            found = self._of(newer, older, check)
            rows.setdefault(newer.path, set()).update(*found.values())
        return {path: frozenset(numbers) for path, numbers in rows.items() if numbers}

    def _extend(
        self,
        lake: LakeSettings,
        table: Glance,
        record: Record,
        present: Mapping[ColdFile, str],
        is_new: NDArray[np.bool_],
        check: Callable[[], None],
    ) -> None:
        """Compares the new files of the whole table, the earlier ones first, and records them."""
        files = table.files
        pairs = _pairs(files, is_new)
        new = {file for file, each in zip(files, is_new.tolist(), strict=True) if each}
        written_s = time.monotonic()
        for newer in sorted(pairs.keys() - new, key=_rank):
            self._note(record, present, newer, self._of(newer, pairs[newer], check))
        try:
            for file in sorted(new, key=_rank):
                self._note(record, present, file, self._of(file, pairs.get(file, []), check))
                # Invariant of a record: all earlier ones in it were compared with this one.
                record.files.add(present[file])
                if time.monotonic() > written_s + _WRITTEN_S:
                    record.write(lake, table, present.values())
                    written_s = time.monotonic()
        finally:
            record.write(lake, table, present.values())

    def _note(
        self,
        record: Record,
        present: Mapping[ColdFile, str],
        newer: ColdFile,
        found: Mapping[ColdFile, tuple[int, ...]],
    ) -> None:
        if found:
            held = record.rows.setdefault(present[newer], {})
            held |= {present[other]: list(rows) for other, rows in found.items()}

    def _of(
        self, newer: ColdFile, older: list[ColdFile], check: Callable[[], None]
    ) -> dict[ColdFile, tuple[int, ...]]:
        """The rows of a file that these have, by them."""
        with self._lock:
            known = self._known.get(newer, _NOTHING)
        new = [file for file in older if file not in known.others]
        if new:
            found = dict(_compared(newer, new, check))
            known = _Compared(known.others | frozenset(new), known.rows | found)
            with self._lock:
                self._known[newer] = known
        return {file: known.rows[file] for file in older if file in known.rows}


DOUBLES: Final = Doubles()
"""Of this process."""
_NOTHING: Final = _Compared(frozenset(), {})


def _pairs(files: Sequence[ColdFile], is_new: NDArray[np.bool_]) -> dict[ColdFile, list[ColdFile]]:
    """Each file with the earlier ones that may have some of its spans, one of both being new.

    Files of one commit were compared with each other, and so were those of a compaction with all
    that it found; what a compaction wrote is as old as what it replaced.
    """
    if not is_new.any():
        return {}
    times = np.array([file.times_us or _FOREVER for file in files])
    ranks = np.array([_rank(file) for file in files])
    found: dict[ColdFile, list[ColdFile]] = defaultdict(list)
    for number in np.flatnonzero(is_new).tolist():
        first, last = times[number]
        overlapping = (times[:, 0] <= last) & (first <= times[:, 1])
        for older in _at(files, overlapping & (ranks < ranks[number])):
            found[files[number]].append(older)
        for newer in _at(files, overlapping & (ranks > ranks[number]) & ~is_new):
            found[newer].append(files[number])
    return dict(found)


def _at(files: Sequence[ColdFile], chosen: NDArray[np.bool_]) -> Iterator[ColdFile]:
    return (files[number] for number in np.flatnonzero(chosen).tolist())


def _rank(file: ColdFile) -> int:
    return file.sequence if _is_of_batch(file) else -1


def _is_of_batch(file: ColdFile) -> bool:
    return not (key_of(file.path) or "b").startswith("r")


class _Over(Exception):
    """Whoever asked wants no more."""


def _compared(
    newer: ColdFile, older: list[ColdFile], check: Callable[[], None]
) -> list[tuple[ColdFile, tuple[int, ...]]]:
    """The rows that are in both, of each of the older files that has some.

    With each are compared the rows of its own time: a file of far-off days has a few of every one,
    and is not to be compared as a whole with all that the table has.
    """
    check()
    rows = named_spans(newer, _times(older))
    found = []
    for file in older:
        suspects = rows_within(rows, file.times_us)
        if not suspects.num_rows:
            continue
        traces = suspects["trace_id"].unique()
        few = len(traces) <= PROBED_TRACES
        if few and not TRACE_FILTERS.chosen([file], traces.to_pylist()):
            continue
        check()
        has = _has(file, newer, identities(TABLE, suspects))
        both = suspects[ROW].to_numpy()[has]
        if len(both):
            found.append((file, tuple(both.tolist())))
    return found


def _has(file: ColdFile, newer: ColdFile, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    window = Window()
    window.add(identities(TABLE, named_spans(file, newer.times_us)))
    return window.knows(keys)


def _times(files: list[ColdFile]) -> tuple[int, int] | None:
    """From the first to the last of them all; None where one does not say."""
    known = [file.times_us for file in files if file.times_us is not None]
    if len(known) < len(files):
        return None
    return min(first for first, _ in known), max(last for _, last in known)
