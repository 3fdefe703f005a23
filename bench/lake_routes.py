"""From sealed segments to Parquet: by the pipeline, by pyarrow alone, and by Spark alone."""

from __future__ import annotations

import contextlib
import functools
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake.layout import batch_key
from penstock.lake.rows import row_batches
from penstock.lake.schemas import SHARING, SPANS
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.lake.target import Target
from penstock.lake.writer import write_rows
from penstock.otel import Signal
from penstock.pipeline import spark_session, stop_session
from penstock.pipeline.flush.settings import FlushSettings
from penstock.pipeline.flush.stream import start_flush
from penstock.pipeline.flush.task import PIECE_BYTES
from penstock.segment import SegmentReader
from penstock.storage import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from harness import Measure, Run
    from lake_data import Sealed
    from penstock.model.bundle import Bundle
    from penstock.model.positions import Position
    from penstock.tiers.segments import Segment

MASTER = "local[2]"
FILES = LocalFiles()


@functools.cache
def spark() -> SparkSession:
    """The session of all cases."""
    return spark_session(MASTER)


@contextlib.contextmanager
def spark_ended() -> Iterator[None]:
    """Ends the session, if a case has begun one."""
    try:
        yield
    finally:
        if spark.cache_info().currsize:
            stop_session(spark())


def few_rounds(run: Run, measures: Mapping[str, Measure]) -> dict[str, float]:
    """Of measures that take seconds each: one round in a quick run, three in a full one."""
    if run.quick:
        return {name: measure() for name, measure in measures.items()}
    return replace(run, quick=True).medians(measures)


def lake_at(folder: Path) -> LakeSettings:
    """A lake that is not in the data directory, so that there may be many."""
    return LakeSettings(warehouse=str(folder))


def flush(data: Sealed, lake: Path, settings: FlushSettings | None = None) -> None:
    """What `penstock pipeline run --once` does within its session."""
    query = start_flush(spark(), data.folder, lake_at(lake), settings or FlushSettings(), once=True)
    query.awaitTermination()


def rows_in(lake: Path) -> tuple[int, int]:
    """How many spans are in the lake, and how many bytes of files."""
    with Lake.open(lake_at(lake)) as opened:
        files = [task.file for task in opened.table("spans").scan().plan_files()]
        return sum(f.record_count for f in files), sum(f.file_size_in_bytes for f in files)


def write_with_pyarrow(data: Sealed, lake: Path) -> float:
    """The same rows to the same files in this process; the processor time.

    Nothing is compared, and nothing committed.
    """
    with Lake.open(lake_at(lake)) as opened:
        target = Target.of(opened.table("spans"))
    started = time.process_time()
    key = batch_key({}, {}, 0)
    for part, rows in enumerate(pieces(data.segments())):
        write_rows(rows, target, key, part)
    return time.process_time() - started


def plain_bytes(data: Sealed, folder: Path) -> int:
    """The size of the same rows as pyarrow writes them when only asked for zstd."""
    size = 0
    for part, rows in enumerate(pieces(data.segments())):
        path = folder / f"{part}.parquet"
        pq.write_table(rows.cast(SPANS), path, compression="zstd")
        size += path.stat().st_size
        path.unlink()
    return size


def spark_rows(data: Sealed) -> DataFrame:
    """The spans, through Spark's own hands."""
    reader = spark().read.format("penstock").option("rows", "table").option("table", "spans")
    return reader.load(str(data.folder))


def write_with_spark(rows: DataFrame, folder: Path) -> None:
    """By Java's Parquet writer, as it comes but for the compression."""
    rows.write.mode("overwrite").option("compression", "zstd").parquet(str(folder))


def pieces(segments: Iterable[Segment]) -> Iterator[pa.Table]:
    """The rows of the segments, as many at once as a task of the pipeline writes."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for segment in segments:
        for batch in row_batches(_bundles(segment), Signal.TRACES, SHARING["spans"]):
            waiting.append(batch)
            size += batch.nbytes
            if size >= PIECE_BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _bundles(segment: Segment) -> Iterator[tuple[Bundle, Position]]:
    reader = SegmentReader.open(FILES, Path(segment.path))
    for index in range(len(reader)):
        stored = reader.bundle(index)
        yield stored.bundle, segment.place.at(stored.first_offset)
