"""The cold flush as a stream: sealed segments become rows of the lake, exactly once.

The lake says where to begin and what has been done; Spark's checkpoint lives as long as one run.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import PySparkException

from penstock.lake.commit import claim
from penstock.lake.positions import read_epochs, read_positions
from penstock.lake.schemas import TABLES
from penstock.lake.tables import Lake
from penstock.model.errors import LogLocked, PenstockError
from penstock.model.positions import of_sources
from penstock.pipeline.feeds import DirectoryFeed
from penstock.pipeline.flush.batch import Flush
from penstock.pipeline.flush.ending import Ending
from penstock.pipeline.offsets import offsets_of
from penstock.storage.files import LocalFiles
from penstock.storage.scratch import Scratch
from penstock.tiers.adoption import adopted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyiceberg.table import Table
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.lake.commit import Adoption
    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import Reached, SourcePartition
    from penstock.pipeline.feeds import Feed
    from penstock.pipeline.flush.settings import FlushSettings

_LOG = logging.getLogger(__name__)
FOLDER: Final = "pipeline"
_EARLIER_CHECKPOINTS: Final = "pipeline/checkpoints"
"""0.1 had them there."""


@contextlib.contextmanager
def only_pipeline(data_dir: Path) -> Iterator[None]:
    """PenstockError where another pipeline of this machine works on the directory."""
    files = LocalFiles()
    files.make_folder(data_dir / FOLDER)
    try:
        lock = files.lock(data_dir / FOLDER / ".lock")
    except LogLocked:
        raise PenstockError(f"another pipeline works on {data_dir}") from None
    try:
        yield
    finally:
        lock.release()


def start_flush(
    spark: SparkSession,
    data_dir: Path,
    lake: LakeSettings,
    settings: FlushSettings,
    *,
    feed: Feed | None = None,
    once: bool = False,
    ending: Ending | None = None,
) -> StreamingQuery:
    """Claims the feed's sources in the lake, fencing whoever had them, and starts the stream.

    Without a `feed` the segments are those of the data directory.

    With `once` it takes what is sealed now, and ends. Whoever has the `ending` can wait for the
    end of the batch under way; `stop` of the query alone cuts it off, which loses nothing.
    """
    feed = feed or DirectoryFeed(data_dir)
    flush, positions = claimed(data_dir, lake, settings, feed)
    flush = replace(flush, ending=ending or Ending())
    feed.claim(positions)
    source = (
        spark.readStream.format("penstock")
        .options(**feed.options)
        .option("rows", "descriptors")
        .option("startingOffsets", offsets_of(positions) if feed.goes_on else "earliest")
        .option("maxBytesPerTrigger", str(settings.batch_bytes))
    )
    if not once:
        source = source.option("minBytesPerTrigger", str(settings.flush_max_bytes)).option(
            "maxTriggerDelay", f"{settings.flush_max_age_s}s"
        )
    writer = (
        source.load()
        .writeStream.queryName(f"penstock-flush {data_dir}")
        .option("checkpointLocation", _new_checkpoint(data_dir))
        .foreachBatch(flush)
    )
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{settings.check_interval_s} seconds").start()


def stop_flush(query: StreamingQuery) -> None:
    """Cuts it off; there is nothing to do where Spark's Java has died, or its Connect server."""
    with contextlib.suppress(OSError, Py4JError, PySparkException):
        query.stop()


@contextlib.contextmanager
def java_lives() -> Iterator[None]:
    """PenstockError where Spark's Java, or its Connect server, dies while it is asked something."""
    try:
        yield
    except (OSError, Py4JError) as error:
        reason = "Spark's Java process has died; what was committed is in the lake"
        raise PenstockError(reason) from error
    except PySparkException as error:
        reason = "Spark does not answer any more; what was committed is in the lake"
        raise PenstockError(reason) from error


def claimed(
    data_dir: Path, lake: LakeSettings, settings: FlushSettings, feed: Feed | None = None
) -> tuple[Flush, dict[SourcePartition, Reached]]:
    """The only writer of the feed's sources from now on, and where it goes on."""
    feed = feed or DirectoryFeed(data_dir)
    positions: dict[SourcePartition, Reached] = {}
    epochs = {}
    sources, adopt = feed.sources(), feed.adoption(lake)
    with Lake.open(lake) as opened:
        tables = {name: opened.table(name) for name in TABLES}
        for table in tables.values():
            positions |= _going_on(table, sources, adopt)
        # Refused before a claim fences a writer that has more right to it, and once more when
        # nobody else can move the positions.
        feed.check_positions(positions)
        for name, table in tables.items():
            epochs[name] = claim(table, sources, adopt)
            positions |= of_sources(read_positions(table), sources)
    feed.check_positions(positions)
    return Flush(data_dir, lake, settings, epochs, sources, feed), positions


def _going_on(
    table: Table, sources: frozenset[str], adopt: Adoption | None
) -> dict[SourcePartition, Reached]:
    """Where a claim would find the sources."""
    found = read_positions(table)
    if adopt is not None:
        found = adopted(found, read_epochs(table), adopt)
    return of_sources(found, sources)


def _new_checkpoint(data_dir: Path) -> str:
    """Of one run, and of no use after it; not beside the data, whose disk may be full."""
    shutil.rmtree(data_dir / _EARLIER_CHECKPOINTS, ignore_errors=True)
    made = Scratch("checkpoint")
    atexit.register(made.remove)
    return made.path.absolute().as_uri()
