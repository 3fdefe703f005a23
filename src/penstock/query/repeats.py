"""Leaves out of the fresh rows what an older tier has: cold before warm, warm before hot.

A span that was sent again has the time that it had, so only files of the lake that overlap the
times of the fresh rows can hold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.schemas import TABLES
from penstock.pipeline.flush.identity import SPAN_IDENTITY, has_name, identities, repeated
from penstock.pipeline.flush.window import Window
from penstock.query.tiers import Tier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.lake.glance import ColdFile
    from penstock.query.tiers import TableTiers


def without_repeats(table: str, found: TableTiers) -> pa.Table:
    """The fresh rows, each once, and none that the lake has. Spans only are looked for there."""
    tiers = [found.fresh[tier] for tier in (Tier.WARM, Tier.HOT) if tier in found.fresh]
    rows = pa.concat_tables([TABLES[table].empty_table(), *tiers])
    if not rows.num_rows:
        return rows
    keys = identities(table, rows)
    unwanted = repeated(table, rows, keys)
    if table == "spans":
        unwanted |= _in_lake(rows, found, keys)
    return rows.filter(pa.array(~unwanted)) if unwanted.any() else rows


def _in_lake(rows: pa.Table, found: TableTiers, keys: np.ndarray) -> np.ndarray:
    known = np.zeros(len(keys), bool)
    for file in _overlapping(rows, found.cold.files):
        cold = pq.read_table(file.path, columns=list(SPAN_IDENTITY), partitioning=None)
        window = Window.without_end()
        window.add(identities("spans", cold.filter(pa.array(has_name("spans", cold)))), 0.0)
        known |= window.knows(keys)
    return known


def _overlapping(rows: pa.Table, files: tuple[ColdFile, ...]) -> Iterator[ColdFile]:
    times = pc.min_max(rows["time"].cast(pa.int64())).as_py()
    first, last = times["min"], times["max"]
    for file in files:
        times_us = file.times_us
        if times_us is None or first is None or (times_us[0] <= last and first <= times_us[1]):
            yield file
