"""The rows of a segment, made here and nowhere else: for queries, snapshots, Spark and the flush.

Who plans counts the rows of a segment, and who reads leaves some out by their numbers; so both have
to get the same rows in the same order. What cannot be read is named, and stops nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lake.schemas import signal_of
from penstock.model.errors import PenstockError
from penstock.tiers.cut import in_rest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import pyarrow as pa

    from penstock.model.bundle import Bundle
    from penstock.model.positions import Position
    from penstock.tiers.segments import Bundles, Segment

    Told = Callable[[str], None]


def segment_rows(
    segment: Segment,
    bundles: Bundles,
    table: str,
    *,
    lost: Told,
    rowless: Told,
    slots: Collection[int] | None = None,
    wants: Callable[[int], bool] = lambda _: True,
    schema: pa.Schema | None = None,
) -> Iterator[pa.RecordBatch]:
    """What is meant of a segment, in the memory of `row_batches`.

    `lost` is told of bundles that cannot be read, and `rowless` of those that are what was stored
    and no rows of the table; either may raise, which ends it. `slots` are those that are read, and
    `wants` says of the number of a bundle whether it is.
    """
    from penstock.lake.rows import row_batches  # who only plans makes no rows

    stored = _bundles(segment, bundles, slots, wants, lost)
    batches = row_batches(
        stored, signal_of(table), schema, lambda error: rowless(f"{segment.path}: {error}")
    )
    return (in_rest(segment, batch) for batch in batches)


def _bundles(
    segment: Segment,
    bundles: Bundles,
    slots: Collection[int] | None,
    wants: Callable[[int], bool],
    lost: Told,
) -> Iterator[tuple[Bundle, Position]]:
    for index in range(len(bundles)):
        try:
            if not wants(index):
                continue
            stored = bundles.bundle(index, slots)
        except PenstockError as error:
            reason = str(error).removeprefix(f"{bundles.name}: ")
            lost(f"{segment.path}: bundle {index}: {reason}")
            continue
        yield stored.bundle, segment.place.at(stored.first_offset)
