"""Fresh rows in pieces that never change: a sealed segment, or a stretch of the log.

Making rows costs more than most queries, so a process that asks often keeps those it made: which
segments there are changes from query to query, a segment does not.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.identity import has_name, identities

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray

    from penstock.lake.hashing import Hashes
    from penstock.tiers.findings import Lack

KEPT_BYTES: Final = 256 * 1024 * 1024
"""Rows of so many bytes are remembered by a process, in all."""
LARGE: Final = frozenset(
    {"attributes", "attribute_types", "events", "links", "resource", "instrumentation_scope"}
)
"""Columns of spans that take five times as long to make as all others together."""


@dataclass
class Piece:
    """Rows, and what was found out about them. Kept by several threads; nothing is taken back."""

    table: str
    rows: pa.Table
    """Perhaps without the large columns."""
    notes: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()
    """What of it could not be read. Such a piece is not remembered: it may be mended."""
    compared: set[str] = field(default_factory=set)
    """The files of the lake whose rows were looked for in it."""

    def __post_init__(self) -> None:
        """No row is known to be in the lake."""
        self.in_lake: NDArray[np.bool_] = np.zeros(self.rows.num_rows, bool)

    def with_rows(self, rows: pa.Table, offset: int = 0) -> Piece:
        """Some of its rows, of which nothing is known yet; itself where they are all.

        Another tier has the messages before the offset: they are not missing.
        """
        lacks = tuple(each for each in self.lacks if (each.end_offset or offset + 1) > offset)
        if rows is self.rows and len(lacks) == len(self.lacks):
            return self
        return Piece(self.table, rows, self.notes, lacks)

    @cached_property
    def keys(self) -> Hashes:
        """What the rows have in common with those that are the same."""
        return identities(self.table, self.rows)

    @cached_property
    def times_us(self) -> tuple[int, int] | None:
        """The first and the last time; None where a row has none."""
        times = self.rows["time"]
        if not len(times) or times.null_count:
            return None
        found = pc.min_max(times.cast(pa.int64()))
        return found["min"].as_py(), found["max"].as_py()

    @cached_property
    def is_named(self) -> bool:
        """Whether every row is known by its ids, without its content."""
        return bool(has_name(self.table, self.rows).all())

    @property
    def bytes(self) -> int:
        """Of memory."""
        return int(self.rows.nbytes + 32 * self.rows.num_rows)


class Pieces:
    """The pieces that were used last, by what they are of. Safe for threads."""

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Piece] = OrderedDict()
        self._bytes = 0

    def get(self, name: Hashable, make: Callable[[], Piece]) -> Piece:
        """The piece of that name, made where it is not remembered."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        made = make()
        self.put(name, made)
        return made

    def put(self, name: Hashable, piece: Piece) -> None:
        """Remembers it, and forgets what was not used for longest."""
        with self._lock:
            self._remove(name)
            if piece.lacks:
                return
            self._kept[name] = piece
            self._bytes += piece.bytes
            while self._bytes > self._most:
                self._remove(next(iter(self._kept)))

    def peek(self, name: Hashable) -> Piece | None:
        """The piece, where it is remembered."""
        with self._lock:
            return self._kept.get(name)

    def _remove(self, name: Hashable) -> None:
        piece = self._kept.pop(name, None)
        if piece is not None:
            self._bytes -= piece.bytes


PIECES: Final = Pieces()
"""Of this process."""
