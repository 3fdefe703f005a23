"""Batches into a table of a day, and into one of a year: what each costs a span."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from harness import Row
from lake_data import REQUEST_SPANS, Requests, open_store
from lake_processes import cpu_s
from lake_routes import lake_at, spark
from penstock.lake.commit import claim, commit
from penstock.lake.layout import batch_key, data_path
from penstock.lake.positions import Position, Source, read_positions
from penstock.lake.schemas import SPANS, TABLES
from penstock.lake.tables import Lake
from penstock.lake.target import Target
from penstock.lake.writer import write_rows
from penstock.pipeline.descriptors import descriptor_rows
from penstock.pipeline.flush.batch import Flush
from penstock.pipeline.flush.settings import FlushSettings
from penstock.pipeline.segments import DirectorySegments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness import Run
    from penstock.lake.files import WrittenFile
    from penstock.store import Store

SEGMENT_BYTES = 64 * 1024 * 1024
BATCH_SPANS = 25_000
LAST_DAY = dt.date(2026, 9, 20)
FILLING = Source("/filling/traces", 0)
FILES_A_COMMIT = 300


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
    batches = 5 if run.quick else 60
    with run.folder() as folder, open_store(folder / "data", SEGMENT_BYTES) as store:
        small = _grown(folder, "small", days=1, files=10)
        large = _grown(folder, "large", days=365, files=3000)
        requests, lakes = Requests(16), [small, large]
        for number in range(batches + 1):
            _seal_batch(store, requests, number)
            for lake in lakes:
                lake.take(number)
            lakes.reverse()
    per_span = 1e6 / (batches * BATCH_SPANS)
    yield Row(
        "a batch into 365 days, 3000 files",
        large.cpu_s * per_span,
        "µs/span",
        "into 1 day, 10 files",
        small.cpu_s * per_span,
        target=1.2,
        better="lower",
    )


def _seal_batch(store: Store, requests: Requests, number: int) -> None:
    count = BATCH_SPANS // REQUEST_SPANS
    for each in range(number * count, (number + 1) * count):
        store.append(requests.request(each))
    store.flush()


def _grown(folder: Path, name: str, *, days: int, files: int) -> Grown:
    lake = lake_at(folder / name)
    with Lake.open(lake) as opened:
        table = opened.table("spans")
        base = dataclasses.replace(Target.of(table), location=str(folder / f"{name} base"))
        _fill(opened, write_rows(_rows(days), base, "base", 0), files)
        epochs = {name: claim(opened.table(name)) for name in TABLES}
    return Grown(Flush(folder / "data", lake, FlushSettings(), epochs))


def _fill(lake: Lake, base: Sequence[WrittenFile], count: int) -> None:
    """Commits copies of the files; a commit's cost depends on how many there are, not on rows."""
    table = lake.table("spans")
    epoch = claim(table)
    for first in range(0, count, FILES_A_COMMIT):
        start = read_positions(table)
        end = {**start, FILLING: Position(first + 1, first + 1)}
        key = batch_key(start, end, epoch)
        files = [
            _linked(base[number % len(base)], data_path(table.location(), None, key, number))
            for number in range(first, min(first + FILES_A_COMMIT, count))
        ]
        commit(table, files, start=start, end=end, epoch=epoch)


def _linked(file: WrittenFile, path: str) -> WrittenFile:
    """Another name for the file that there is."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    os.link(file.path, path)
    return dataclasses.replace(file, path=path)


def _rows(days: int) -> pa.Table:
    """One a day."""
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
