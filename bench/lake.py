"""The benchmark of the lake: from sealed segments to committed tables, on two cores.

Rates are per second of processor time, of all processes: the driver's Python, Spark's Java and its
Python workers. Java's start is not counted; it has run every route once before it is measured. In a
quick run, what is done once however much there is weighs most: its rates have no targets.
"""

from __future__ import annotations

import contextlib
import shutil
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import harness
from harness import Row, Run, in_child
from lake_compaction import compaction
from lake_data import Sealed, seal
from lake_freshness import freshness
from lake_growth import growth
from lake_processes import WorkerMemory, cpu_s
from lake_repeats import full_window, repeats
from lake_routes import (
    flush,
    plain_bytes,
    rows_in,
    spark_ended,
    spark_rows,
    write_with_pyarrow,
    write_with_spark,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

PYARROW = "pyarrow alone, same files"
SPARK = "spark.read and Java's writer"
PLAIN = "pq.write_table with zstd"
SEGMENT_BYTES = 32 * 1024 * 1024
WARM_SPANS = 50_000
MB = 1e6


def sealed_to_committed(run: Run) -> Iterator[Row]:
    """All that was sealed, in one run of the pipeline; the size and the memory that this takes."""
    spans = 300_000 if run.quick else 5_000_000
    with run.folder() as folder:
        _warm_up(folder / "warm", 1 if run.quick else 3)
        data = seal(folder / "data", spans, SEGMENT_BYTES, distinct=128 if run.quick else 256)
        found = _Routes(data, folder)
        for _ in range(1 if run.quick else 2):
            found.take_turns()
        name = f"{data.spans / 1e6:.3g} M spans to the lake"
        yield found.row(name, PYARROW, found.pyarrow, target=None if run.quick else 0.7)
        found.take_spark()  # last, since it fills the memory of the workers
        yield found.row(name, SPARK, found.spark, target=None if run.quick else 3.0)
        plain = in_child(plain_bytes, data, folder) / data.spans
    size = found.bytes / data.spans
    yield Row("size in the lake", size, "bytes/span", PLAIN, plain, target=1.0, better="lower")
    memory = found.memory.most_bytes / MB
    yield Row("memory of a Python worker", memory, "MB", target=500.0, better="lower")


class _Routes:
    """The same segments by every route; the processor time of each time."""

    def __init__(self, data: Sealed, folder: Path) -> None:
        self._data = data
        self._folder = folder
        self.penstock: list[float] = []
        self.pyarrow: list[float] = []
        self.spark: list[float] = []
        self.bytes = 0
        self.memory = WorkerMemory()

    def take_turns(self) -> None:
        """The pipeline, and pyarrow alone in a process of its own."""
        with self._lake() as lake, self.memory.watched():
            self.penstock.append(_cpu_of(partial(flush, self._data, lake)))
            rows, self.bytes = rows_in(lake)
        if rows != self._data.spans:
            raise RuntimeError(f"{rows} of {self._data.spans} spans are in the lake")
        with self._lake() as lake:
            self.pyarrow.append(in_child(write_with_pyarrow, self._data, lake))

    def take_spark(self) -> None:
        """Every row through Java."""
        with self._lake() as lake:
            self.spark.append(_cpu_of(lambda: write_with_spark(spark_rows(self._data), lake)))

    def row(self, name: str, baseline: str, used_s: Sequence[float], target: float | None) -> Row:
        """The pipeline's rate against another's."""
        ours, theirs = (self._data.spans / median(each) for each in (self.penstock, used_s))
        return Row(name, ours, "spans/CPU-s", baseline, theirs, target=target)

    @contextlib.contextmanager
    def _lake(self) -> Iterator[Path]:
        folder = self._folder / "lake"
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _warm_up(folder: Path, times: int) -> None:
    data = seal(folder / "data", WARM_SPANS, SEGMENT_BYTES, distinct=16)
    for number in range(times):
        flush(data, folder / f"lake {number}")
        write_with_spark(spark_rows(data), folder / "rows")


def _cpu_of(work: Callable[[], None]) -> float:
    started = cpu_s()
    work()
    return cpu_s() - started


CASES = [sealed_to_committed, freshness, compaction, growth, repeats, full_window]

if __name__ == "__main__":
    with spark_ended():
        harness.main("lake", CASES)
