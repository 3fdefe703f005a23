"""A data directory with spans of the shop in all three tiers, and lakes of many days."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake_data import REQUEST_SPANS, SPANS_A_SECOND, Requests, open_store
from penstock.lake.commit import claim, commit
from penstock.lake.layout import batch_key
from penstock.lake.positions import read_positions
from penstock.lake.rows import row_batches
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.lake.target import Target
from penstock.lake.writer import write_rows
from penstock.model.positions import Reached, SourcePartition
from penstock.otel import Signal, decode_requests
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from penstock.store import Store

FILLING = SourcePartition("filling", "/default/filling", 0)
"""Where the rows of the lake come from: a topic that is not in the data directory."""
FILE_SPANS = 500_000
SEGMENT_BYTES = 16 * 1024 * 1024
DAY_US = 86_400_000_000
MANY_SPANS = 20
"""In each of many small files."""
MANY_AT_ONCE = 50
"""Of many files, in one commit."""
TIMES = ("start_time_unix_nano", "end_time_unix_nano")


@dataclass(frozen=True)
class Tiers:
    """Where the rows are, and a trace that the lake has."""

    folder: Path
    trace_id: str

    @property
    def lake(self) -> LakeSettings:
        """Of the data directory."""
        return LakeSettings.of(self.folder)


@contextlib.contextmanager
def three_tiers(folder: Path, *, cold: int, warm: int, hot: int) -> Iterator[tuple[Tiers, Store]]:
    """So many spans in each; the store that has the fresh ones stays open."""
    trace_id = fill_lake(folder, copies(shop_rows(min(FILE_SPANS, cold)), cold // FILE_SPANS or 1))
    number = cold // REQUEST_SPANS
    requests = Requests(64)
    with open_store(folder, SEGMENT_BYTES) as store:
        for each in range(number, number + warm // REQUEST_SPANS):
            store.append(requests.request(each))
        store.flush()
        number += warm // REQUEST_SPANS
        for each in range(number, number + hot // REQUEST_SPANS):
            store.append(requests.request(each)).durable.wait()
        yield Tiers(folder, trace_id), store


def shop_rows(spans: int) -> pa.Table:
    """Spans as the lake has them, from the shop's first second on."""
    requests = Requests(64, seed=2)
    origin = FILLING.at(0)
    found = list[pa.RecordBatch]()
    for number in range(spans // REQUEST_SPANS):
        for part in decode_requests(Signal.TRACES, [requests.request(number)]):
            assert part.bundle is not None
            found += row_batches([(part.bundle, origin.after(number))], Signal.TRACES)
    return pa.Table.from_batches(found)


def copies(rows: pa.Table, count: int, every_us: int | None = None) -> Iterator[pa.Table]:
    """The rows again and again, each time later and with ids of their own."""
    step_us = every_us or rows.num_rows * 1_000_000 // SPANS_A_SECOND
    for number in range(count):
        later = rows
        for name in ("trace_id", "span_id", "parent_span_id"):
            ids = pc.binary_replace_slice(rows[name], 0, 4, f"{number:04x}")
            later = _with(later, name, ids)
        for name in TIMES:
            later = _with(later, name, pc.add(rows[name], number * step_us * 1000))
        moved = pc.add(rows["time"].cast(pa.int64()), number * step_us).cast(rows["time"].type)
        yield _with(_with(later, "time", moved), "date", moved.cast(pa.date32()))


def fill_lake(folder: Path, parts: Iterable[pa.Table]) -> str:
    """Commits a file, or one for each day, of every part; returns a trace of the middle one."""
    DataDirectory(folder).create()
    traces: list[str] = []
    with Lake.open(LakeSettings.of(folder)) as lake:
        table = lake.table("spans")
        epoch, start = claim(table, [FILLING.source]), read_positions(table)
        end = {**start, FILLING: Reached(1, 1)}
        target, key = Target.of(table), batch_key(start, end, epoch)
        files = []
        for part, rows in enumerate(parts):
            files += write_rows(rows, target, key, part)
            traces.append(rows["trace_id"][rows.num_rows // 2].as_py())
        commit(table, files, start=start, end=end, epoch=epoch)
    return traces[len(traces) // 2]


def many_files(folder: Path, count: int) -> None:
    """A lake of so many small files, some in a commit; each overlaps its neighbours in time."""
    DataDirectory(folder).create()
    rows = shop_rows(REQUEST_SPANS).slice(0, MANY_SPANS)
    times = rows["time"].cast(pa.int64())
    step_us = max(1, (pc.max(times).as_py() - pc.min(times).as_py()) * 2 // 3)
    parts = copies(rows, count, step_us)
    with Lake.open(LakeSettings.of(folder)) as lake:
        table = lake.table("spans")
        epoch, target = claim(table, [FILLING.source]), Target.of(table)
        for first in range(0, count, MANY_AT_ONCE):
            start = read_positions(table)
            end = {**start, FILLING: Reached(first + 1, first + 1)}
            key = batch_key(start, end, epoch)
            files = []
            for part, rows in enumerate(itertools.islice(parts, MANY_AT_ONCE)):
                files += write_rows(rows, target, key, part)
            commit(table, files, start=start, end=end, epoch=epoch)


def _with(rows: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
