"""Compaction of a day, against DuckDB that sorts the same files into one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness import BaselineAbsent, Row
from lake_data import seal
from lake_files import fill, written_apart
from lake_routes import few_rounds, lake_at, pieces, spark
from penstock.lake.tables import Lake
from penstock.pipeline.jobs.compact import compact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from harness import Run
    from penstock.lake.files import WrittenFile

DUCKDB = "DuckDB, COPY … ORDER BY"
SEGMENT_BYTES = 32 * 1024 * 1024
FILE_SPANS = 10_000
COPY = """
    COPY (SELECT * FROM read_parquet(?) ORDER BY service_name, time) TO '{path}'
    (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 131072)
"""
CORES = 2
MB = 1e6


def compaction(run: Run) -> Iterator[Row]:
    """Bytes of small files that become large ones in a second; DuckDB looks for no repeats."""
    spans = 100_000 if run.quick else 1_000_000
    with run.folder() as folder:
        data = seal(folder / "data", spans, SEGMENT_BYTES, distinct=128)
        files = written_apart(folder, _slices(pieces(data.segments())))
        ways = _Ways(folder, files)
        measures = {"ours": ways.compact_rate}
        try:
            ways.duckdb_rate()
            measures[DUCKDB] = ways.duckdb_rate
        except BaselineAbsent as absent:
            run.say(f"skipped: {DUCKDB}: {absent}")
        ways.compact_rate()  # Java compiles, and workers start
        found = few_rounds(run, measures)
    target = None if run.quick else 0.4
    name = f"compaction of {len(files)} files, {ways.bytes / MB:.0f} MB"
    yield Row(name, found["ours"], "MB/s", DUCKDB, found.get(DUCKDB), target=target)


class _Ways:
    """Each returns how many MB of the files it took in a second."""

    def __init__(self, folder: Path, files: Sequence[WrittenFile]) -> None:
        self._folder = folder
        self._files = files
        self._numbers = iter(range(10_000))
        self.bytes = sum(file.bytes for file in files)

    def compact_rate(self) -> float:
        """A table that has the files, and a file or two afterwards."""
        with Lake.open(lake_at(self._folder / f"lake {next(self._numbers)}")) as lake:
            fill(lake.table("spans"), self._files, len(self._files))
            started = time.perf_counter()
            [report] = compact(spark(), lake, tables=["spans"])
            seconds = time.perf_counter() - started
        if report.problem or report.rows != sum(file.rows for file in self._files):
            raise RuntimeError(f"the day was not compacted: {report}")
        return self.bytes / MB / seconds

    def duckdb_rate(self) -> float:
        """One file with the same order, compression and row groups."""
        try:
            import duckdb
        except ImportError:
            raise BaselineAbsent("pip install duckdb") from None
        paths = [file.path for file in self._files]
        copy = COPY.format(path=self._folder / "sorted.parquet")
        with duckdb.connect(config={"threads": CORES}) as connection:
            started = time.perf_counter()
            connection.execute(copy, [paths])
            return self.bytes / MB / (time.perf_counter() - started)


def _slices(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        for start in range(0, table.num_rows, FILE_SPANS):
            yield table.slice(start, FILE_SPANS)
