"""Batches into a table of a day, and into one of a year: what each costs a span."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from harness import Row
from lake_data import REQUEST_SPANS, Requests, open_store
from lake_files import fill, written_apart
from lake_processes import cpu_s
from lake_routes import lake_at, spark
from penstock.lake.commit import claim
from penstock.lake.schemas import SPANS, TABLES
from penstock.lake.tables import Lake
from penstock.pipeline.descriptors import descriptor_rows
from penstock.pipeline.feeds import DirectoryFeed
from penstock.pipeline.flush.batch import Flush
from penstock.pipeline.flush.settings import FlushSettings
from penstock.tiers.segments import DirectorySegments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness import Run
    from penstock.store import Store

SEGMENT_BYTES = 64 * 1024 * 1024
BATCH_SPANS = 25_000
LAST_DAY = dt.date(2026, 9, 20)


@dataclass
class Grown:
    """A lake with some days and files, and what batches into it have cost."""

    flush: Flush
    cpu_s: float = 0.0

    def take(self, number: int) -> None:
        """What is sealed and not in it yet. The first batch opens everything and is not counted."""
        described = descriptor_rows(DirectorySegments(self.flush.data_dir).since({}))
        started = cpu_s()
        self.flush(spark().createDataFrame(pa.Table.from_batches([described])), number)
        self.cpu_s += cpu_s() - started if number else 0.0


def growth(run: Run) -> Iterator[Row]:
    """The same batches, in turns, into both tables; merges of manifests included."""
    batches, days, files = (3, 100, 300) if run.quick else (60, 365, 3000)
    with run.folder() as folder, open_store(folder / "data", SEGMENT_BYTES) as store:
        small = _grown(folder, "small", days=1, files=10)
        large = _grown(folder, "large", days=days, files=files)
        requests, lakes = Requests(16), [small, large]
        for number in range(batches + 1):
            _seal_batch(store, requests, number)
            for lake in lakes:
                lake.take(number)
            lakes.reverse()
    per_span = 1e6 / (batches * BATCH_SPANS)
    yield Row(
        f"a batch into {days} days, {files} files",
        large.cpu_s * per_span,
        "µs/span",
        "into 1 day, 10 files",
        small.cpu_s * per_span,
        target=None if run.quick else 1.2,
        better="lower",
    )


def _seal_batch(store: Store, requests: Requests, number: int) -> None:
    count = BATCH_SPANS // REQUEST_SPANS
    for each in range(number * count, (number + 1) * count):
        store.append(requests.request(each))
    store.flush()


def _grown(folder: Path, name: str, *, days: int, files: int) -> Grown:
    lake = lake_at(folder / name)
    apart = written_apart(folder / f"{name}, apart", [_rows(days)])
    with Lake.open(lake) as opened:
        fill(opened.table("spans"), apart, files)
        feed = DirectoryFeed(folder / "data")
        sources = feed.sources()
        epochs = {name: claim(opened.table(name), sources) for name in TABLES}
    return Grown(Flush(folder / "data", lake, FlushSettings(), epochs, sources, feed))


def _rows(days: int) -> pa.Table:
    """One a day: a commit's cost depends on how many files there are, not on what they hold."""
    numbers = range(days)
    noons = [
        dt.datetime.combine(LAST_DAY - dt.timedelta(days=number), dt.time(12), dt.UTC)
        for number in numbers
    ]
    columns = {
        "time": noons,
        "namespace": ["default"] * days,
        "service_name": ["shop"] * days,
        "trace_id": [f"{number:032x}" for number in numbers],
        "span_id": [f"{number:016x}" for number in numbers],
    }
    return pa.table(
        [pa.array(columns.get(field.name, [None] * days), field.type) for field in SPANS],
        schema=SPANS,
    )
