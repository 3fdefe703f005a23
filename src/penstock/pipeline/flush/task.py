"""What a task does: a group of segments becomes Parquet files of one table.

Segments are mapped and read bundle by bundle; memory is that of one segment's rows and of the file
that is being written. Nothing that a task has written is visible before the driver commits it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.lake.identity import has_name, identities, lasts, of_messages, repeated
from penstock.lake.schemas import SHARING
from penstock.lake.window import Window, in_order
from penstock.lake.writer import write_rows
from penstock.model.errors import Damaged, OffsetUnavailable
from penstock.tiers.rows import segment_rows
from penstock.tiers.segments import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penstock.lake.far_off import Arrival
    from penstock.lake.files import WrittenFile
    from penstock.lake.hashing import Hashes
    from penstock.lake.target import Target
    from penstock.tiers.segments import Segment, Segments

PIECE_BYTES: Final = 40 * 1024 * 1024
"""Rows of so many bytes in memory make a file, or one for each of their days."""
PIECES_OF_A_GROUP: Final = 100_000


@dataclass(frozen=True, slots=True)
class Work:
    """What a batch writes to one table. Pickled to the tasks."""

    table: str
    target: Target
    key: str
    """What the names of the files begin with."""
    source: Segments
    groups: tuple[tuple[Segment, ...], ...]
    arrival: Arrival | None = None
    """When they came; None: every day has a file of its own."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something of a segment that could not be read, or is not there."""

    segment: Segment
    problem: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that were written together."""

    part: int
    files: tuple[WrittenFile, ...]
    keys: Hashes
    """The identities of the rows, in any order."""
    lasting: Hashes
    """Those by which later batches are compared."""
    far_off: tuple[tuple[str, int], ...] = ()
    """How many rows of each namespace are in no file of their day."""

    @classmethod
    def of(
        cls,
        table: str,
        part: int,
        files: Iterable[WrittenFile],
        rows: pa.Table,
        keys: Hashes,
        arrival: Arrival | None = None,
    ) -> Piece:
        """Of these rows, and their identities."""
        lasting = lasts(table, rows)
        ordered = in_order(keys)
        return cls(
            part,
            tuple(files),
            ordered,
            ordered if lasting.all() else in_order(keys[lasting]),
            arrival.counted(rows) if arrival is not None and rows.num_rows else (),
        )

    @property
    def group(self) -> int:
        """Which one of the batch they are from."""
        return self.part // PIECES_OF_A_GROUP


@dataclass(slots=True)
class Written:
    """What became of a group."""

    table: str
    pieces: list[Piece] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    rows: int = 0
    repeated: int = 0


def write_group(work: Work, number: int) -> Written:
    """Writes all that can be read of a group; what cannot is named, and stops nothing else."""
    pieces = _Pieces(work, number)
    for segment in work.groups[number]:
        for batch in _rows(work, segment, pieces.written.faults):
            pieces.add(batch)
    pieces.end()
    return pieces.written


class _Pieces:
    """Gathers rows and writes them when they are enough for a file."""

    def __init__(self, work: Work, group: int) -> None:
        self.written = Written(work.table)
        self._work = work
        self._part = group * PIECES_OF_A_GROUP
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0
        self._seen = Window()
        self._seen_in_messages = Window()

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= PIECE_BYTES:
            self.end()

    def end(self) -> None:
        """Writes what was gathered, without what is there already."""
        if not self._rows:
            return
        rows = pa.Table.from_batches(self._rows)
        self._rows, self._bytes = [], 0
        keys = identities(self._work.table, rows)
        again = repeated(self._work.table, rows, keys) | self._is_seen(rows, keys)
        if again.any():
            rows, keys = rows.filter(pa.array(~again)), keys[~again]
        self._remember(rows, keys)
        work, part = self._work, self._part
        files = write_rows(rows, work.target, work.key, part, work.arrival)
        piece = Piece.of(work.table, part, files, rows, keys, work.arrival)
        self.written.pieces.append(piece)
        self.written.rows += len(keys)
        self.written.repeated += int(np.count_nonzero(again))
        self._part += 1

    def _is_seen(self, rows: pa.Table, keys: Hashes) -> NDArray[np.bool_]:
        """Whether an earlier piece has the row; a message may go on from one piece to the next."""
        seen = self._seen.knows(keys)
        if seen.any():
            seen &= ~self._seen_in_messages.knows(of_messages(rows, keys))
        return seen

    def _remember(self, rows: pa.Table, keys: Hashes) -> None:
        self._seen.add(keys)
        nameless = ~has_name(self._work.table, rows)
        if nameless.any():
            self._seen_in_messages.add(of_messages(rows, keys)[nameless])


def _rows(work: Work, segment: Segment, faults: list[Fault]) -> Iterator[pa.RecordBatch]:
    problems: list[str] = []
    yield from _readable_rows(work, segment, problems)
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        faults.append(Fault(segment, problems[0] + more))


def _readable_rows(work: Work, segment: Segment, problems: list[str]) -> Iterator[pa.RecordBatch]:
    if segment.state is not State.SEALED:
        problems.append(segment.problem or f"{segment.path} is {segment.state}")
        return
    try:
        reader = work.source.open(segment)
    except (Damaged, OffsetUnavailable) as error:
        problems.append(str(error))
        return
    told = problems.append
    yield from segment_rows(
        segment, reader, work.table, lost=told, rowless=told, schema=SHARING[work.table]
    )
