"""What was decoded of the log, kept until it is sealed: the next query decodes what came since."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.schemas import TABLES, table_of
from penstock.storage import DataDirectory
from penstock.tiers.cut import from_offset
from penstock.tiers.findings import Findings
from penstock.tiers.pieces import Piece

if TYPE_CHECKING:
    from penstock.otel.signals import Signal
    from penstock.storage import Partition

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of one partition; a longer tail is decoded by every query."""
_MOST_PIECES: Final = 16
_DEPTH: Final = 3
"""A partition's folder is DATA/topics/<namespace>/<topic>/<partition>."""
_QUIET_NS: Final = 2_000_000_000
_UNDECODED: Final = "cannot be decoded"
"""What notes say that are still true of the next query."""


Signs: TypeAlias = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Tail:
    start: int
    end: int
    pieces: tuple[Piece, ...]
    signs: Signs | None = None
    """Of the log's files before they were read; None where they may change without a sign."""


class Tails:
    """The decoded tails of partitions. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tails: dict[tuple[str, str], _Tail] = {}

    def pieces(
        self, partition: Partition, signal: Signal, sealed: int, said: Findings
    ) -> list[Piece]:
        """The rows of every message from the offset `sealed` on that is in the log now.

        What is missing of them stands in the pieces: another tier may have it.
        """
        name = _name(partition)
        known, signs = self._known(name, sealed), _signs(partition)
        said.notes += [note for piece in known.pieces for note in piece.notes]
        if signs is not None and signs == known.signs:
            return list(known.pieces)
        new = _decoded(partition, signal, known.end, said)
        if new.lacks:  # it is looked at again by the next query
            return [*known.pieces, new]
        tail = _longer(known, new, signs)
        with self._lock:
            self._tails.pop(name, None)
            if (tail.pieces or tail.signs) and sum(
                piece.bytes for piece in tail.pieces
            ) <= MOST_BYTES:
                self._tails[name] = tail
        return list(tail.pieces)

    def _known(self, name: tuple[str, str], sealed: int) -> _Tail:
        with self._lock:
            tail = self._tails.get(name)
        if tail is None or not tail.start <= sealed <= tail.end:
            return _Tail(sealed, sealed, ())
        pieces = (_from_offset(piece, sealed) for piece in tail.pieces)
        left = tuple(piece for piece in pieces if piece.rows.num_rows)
        return _Tail(sealed, tail.end, left, tail.signs)


TAILS: Final = Tails()
"""Of this process."""


def _from_offset(piece: Piece, offset: int) -> Piece:
    return piece.with_rows(from_offset(piece.rows, offset), offset)


def _decoded(partition: Partition, signal: Signal, start: int, said: Findings) -> Piece:
    from penstock.tiers.hot import hot_rows  # what decodes takes longer to import than a query

    found = Findings()
    table = table_of(signal)
    batches = hot_rows(partition, signal, start, found)
    said.notes += found.notes
    lasting = tuple(note for note in found.notes if _UNDECODED in note)
    rows = pa.Table.from_batches(batches, TABLES[table])
    return _from_offset(Piece(table, rows, lasting, tuple(found.missing)), start)


def _longer(known: _Tail, new: Piece, signs: Signs | None) -> _Tail:
    if not new.rows.num_rows:
        return replace(known, signs=signs)
    pieces = [*known.pieces, new]
    if len(pieces) > _MOST_PIECES:
        pieces = [_joined(pieces)]
    return _Tail(known.start, pc.max(new.rows["_offset"]).as_py() + 1, tuple(pieces), signs)


def _name(partition: Partition) -> tuple[str, str]:
    """A data directory that is made anew in the same place is another one."""
    root = DataDirectory(partition.folder.parents[_DEPTH])
    return str(partition.folder), str(root.identity())


def _signs(partition: Partition) -> Signs | None:
    """What changes when something is appended: the times of the log's files.

    Not to be relied on shortly after a change: the next one may be given the same time.
    """
    try:
        with os.scandir(partition.log_folder) as entries:
            found = [(entry.name, entry.stat()) for entry in entries]
    except OSError:
        return None
    quiet_ns = time.time_ns() - _QUIET_NS
    if any(state.st_mtime_ns > quiet_ns for _, state in found):
        return None
    return tuple(sorted((name, state.st_mtime_ns, state.st_size) for name, state in found))


def _joined(pieces: list[Piece]) -> Piece:
    rows = pa.concat_tables([piece.rows for piece in pieces]).combine_chunks()
    notes = tuple(text for piece in pieces for text in piece.notes)
    joined = Piece(pieces[0].table, rows, notes)
    joined.keys = np.concatenate([piece.keys for piece in pieces])
    joined.compared = set.intersection(*(piece.compared for piece in pieces))
    joined.in_lake = np.concatenate([piece.in_lake for piece in pieces])
    return joined
