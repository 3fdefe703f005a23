"""Takes rows out of files that were just written and are not committed yet.

Whether another task of the batch, or an earlier batch, has the same row is seen only when all of
them have written. That is rare, so it costs a second writing of the few files that it concerns,
and nothing otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake.arrow import conform
from penstock.lake.identity import identities
from penstock.lake.window import Window
from penstock.lake.writer import write_rows
from penstock.pipeline.flush.task import Piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from penstock.lake.far_off import Arrival
    from penstock.lake.hashing import Hashes
    from penstock.lake.target import Target


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A piece, and the rows that are not to be in it. Pickled to a task."""

    table: str
    target: Target
    key: str
    piece: Piece
    unwanted: Hashes
    arrival: Arrival | None = None


class Known(Protocol):
    """Rows that are in the table."""

    def knows(self, keys: Hashes) -> NDArray[np.bool_]:
        """Which of them."""
        ...


def unwanted_rows(pieces: Iterable[Piece], window: Known) -> Iterator[tuple[Piece, Hashes]]:
    """The pieces with rows that the window or an earlier group has.

    Within a group its task has looked; what it has left may be equal, and of one message.
    """
    earlier = Window()
    for _, group in groupby(pieces, key=lambda piece: piece.group):
        own = list(group)
        for piece in own:
            known = window.knows(piece.keys) | earlier.knows(piece.keys)
            if known.any():
                yield piece, piece.keys[known]
        for piece in own:
            earlier.add(piece.keys)


def rewritten(order: Rewrite) -> Piece:
    """The piece without those rows, in new files; its old ones are left to be cleaned up."""
    unwanted = Window()
    unwanted.add(order.unwanted)
    rows = pa.concat_tables([_read(order.target, file.path) for file in order.piece.files])
    keys = identities(order.table, rows)
    wanted = ~unwanted.knows(keys)
    left, part = rows.filter(pa.array(wanted)), order.piece.part
    files = write_rows(left, order.target, order.key, part, order.arrival)
    return Piece.of(order.table, part, files, left, keys[wanted], order.arrival)


def _read(target: Target, path: str) -> pa.Table:
    with target.io.new_input(path).open() as file:
        return conform(pq.read_table(file), target.columns)
