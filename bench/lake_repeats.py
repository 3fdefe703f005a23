"""Recognising what is sent again: by a window of keys, and by a shuffle of Spark.

Both take a batch of spans from its segments to Parquet, without those that were written lately.
"""

from __future__ import annotations

import functools
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness import Row
from lake_data import seal
from lake_routes import few_rounds, lake_at, pieces, spark, spark_rows, write_with_spark
from penstock.lake.identity import SPAN_IDENTITY, identities
from penstock.lake.tables import Lake
from penstock.lake.target import Target
from penstock.pipeline.flush.repeat_window import RepeatWindow
from penstock.pipeline.flush.rewrite import unwanted_rows
from penstock.pipeline.flush.task import Work, write_group
from penstock.pipeline.tasks import run_in_tasks
from penstock.tiers.segments import DirectorySegments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness import Run
    from lake_data import Sealed

BATCH_SPANS = 100_000
KNOWN_SPANS = 1_000_000
MOST_SPANS = 72_000_000
SEGMENT_BYTES = 20 * 1024 * 1024


def repeats(run: Run) -> Iterator[Row]:
    """Time for a batch of 100 000 spans while 1 000 000 are remembered."""
    with run.folder() as folder:
        data = seal(folder / "data", BATCH_SPANS, SEGMENT_BYTES, distinct=64)
        ways = _Ways(data, folder)
        measures = {"window": ways.window_s, "shuffle": ways.shuffle_s, "share": ways.share_s}
        for measure in measures.values():
            measure()  # Java compiles, and workers start
        found = few_rounds(run, measures)
    name = "100 k spans, 1 M known"
    shuffle = ("dropDuplicates and anti-join in Spark", found["shuffle"])
    yield Row(f"{name}: to Parquet", found["window"], "s", *shuffle, better="lower")
    yield Row(f"{name}: window alone", found["share"], "s", better="lower")


class _Ways:
    """Each returns how long it took."""

    def __init__(self, data: Sealed, folder: Path) -> None:
        self._data = data
        self._folder = folder
        self._numbers = iter(range(10_000))
        with Lake.open(lake_at(folder / "lake")) as lake:
            self._target = Target.of(lake.table("spans"))
        self._known_ids = _known(folder / "known.parquet")

    def window_s(self) -> float:
        """As the pipeline does it, but for the commit."""
        window = self._window()
        started = time.perf_counter()
        segments = self._data.segments()
        groups = (tuple(segments[::2]), tuple(segments[1::2]))
        key = f"b{next(self._numbers):08d}-{0:012x}-{0:012x}"
        source = DirectorySegments(self._data.folder)
        work = Work("spans", self._target, key, source, {}, groups)
        written = run_in_tasks(spark(), functools.partial(write_group, work), range(len(groups)))
        parts = [piece for each in written for piece in each.pieces]
        assert not list(unwanted_rows(parts, window))
        run = window.write([part.lasting for part in parts], {}, time.time())
        assert run is not None
        window.keep(run)
        return time.perf_counter() - started

    def shuffle_s(self) -> float:
        """Rows and the ids of the last day through Spark, which divides both by their ids."""
        started = time.perf_counter()
        identity = list(SPAN_IDENTITY)
        known = spark().read.parquet(str(self._known_ids))
        new = spark_rows(self._data).dropDuplicates(identity).join(known, identity, "left_anti")
        write_with_spark(new, self._folder / "shuffled")
        return time.perf_counter() - started

    def share_s(self) -> float:
        """What the first way does for the sake of repeats, on one core."""
        window, seconds = self._window(), 0.0
        for rows in pieces(self._data.segments()):
            started = time.perf_counter()
            keys = identities("spans", rows)
            assert not window.knows(keys).any()
            run = window.write([keys], {}, time.time())
            assert run is not None
            window.keep(run)
            seconds += time.perf_counter() - started
        return seconds

    def _window(self) -> RepeatWindow:
        folder = self._folder / f"window-{next(self._numbers)}"
        return window_of(folder, KNOWN_SPANS)


def window_of(folder: Path, keys: int) -> RepeatWindow:
    """A new one that knows so many spans, of batches of 100 000."""
    random = np.random.default_rng(1)
    window = RepeatWindow(folder, {}, seconds=600.0, most=10**9)
    for _ in range(keys // BATCH_SPANS):
        made = random.integers(0, 2**64, (BATCH_SPANS, 2), np.uint64)
        run = window.write([made], {}, time.time())
        assert run is not None
        window.keep(run)
    return window


def full_window(run: Run) -> Iterator[Row]:
    """What a span costs beside a window of ten minutes at 120,000 a second, or a tenth of it."""
    keys = MOST_SPANS // 10 if run.quick else MOST_SPANS
    with run.folder() as folder:
        window, random = window_of(folder / "window", keys), np.random.default_rng(2)
        seconds = []
        for _ in range(5):
            made = random.integers(0, 2**64, (BATCH_SPANS, 2), np.uint64)
            started = time.perf_counter()
            assert not window.knows(made).any()
            added = window.write([made], {}, time.time())
            assert added is not None
            window.keep(added)
            seconds.append(time.perf_counter() - started)
        size = sum(path.stat().st_size for path in (folder / "window").iterdir())
    name = f"repeat window of {keys / 1e6:g} M spans"
    yield Row(
        f"{name}: a span", statistics.median(seconds) / BATCH_SPANS * 1e6, "us", better="lower"
    )
    yield Row(f"{name}: disk a span", size / keys, "B", better="lower")


def _known(path: Path) -> Path:
    """The ids of a million spans that are none of the batch's."""
    random = np.random.default_rng(2)
    ids = random.bytes(KNOWN_SPANS * 24).hex()
    traces = [ids[48 * number : 48 * number + 32] for number in range(KNOWN_SPANS)]
    spans = [ids[48 * number + 32 : 48 * (number + 1)] for number in range(KNOWN_SPANS)]
    columns = dict(zip(SPAN_IDENTITY, (["default"] * KNOWN_SPANS, traces, spans), strict=True))
    pq.write_table(pa.table(columns), path, compression="zstd")
    return path
