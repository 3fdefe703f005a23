"""`spark.readStream.format("penstock")`: segments are followed, each is read once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.pipeline.helpers import WAIT_S, Data, named, spans
from tests.store.helpers import flip

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


class Follower:
    """A stream with a checkpoint, run as often as a test likes."""

    def __init__(self, spark: SparkSession, data: Data, checkpoint: Path) -> None:
        self._spark = spark
        self._data = data
        self.checkpoint = checkpoint
        self.batches: list[list[str]] = []

    def run(self, column: str = "name", **options: Any) -> list[list[str]]:
        """What is there now; a list for each batch."""
        self.batches = []
        source = self._spark.readStream.format("penstock").options(**options)
        writer = source.load(str(self._data.root)).writeStream.foreachBatch(self._take(column))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(int(WAIT_S))
        finally:
            query.stop()
        return self.batches

    def _take(self, column: str) -> Any:
        def take(rows: DataFrame, _: int) -> None:
            self.batches.append(sorted(str(row[0]) for row in rows.select(column).collect()))

        return take

    def offsets(self) -> dict[str, Any]:
        """Those at the end of the last batch, as Spark keeps them."""
        files = sorted(self.checkpoint.glob("offsets/[0-9]*"), key=lambda path: int(path.name))
        found: dict[str, Any] = json.loads(files[-1].read_text().splitlines()[-1])
        return found

    def forget_last_commit(self) -> None:
        """As if the process had died after the batch and before Spark noted its end."""
        last = max(self.checkpoint.glob("commits/[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def follower(spark: SparkSession, data: Data, tmp_path: Path) -> Follower:
    """A stream that has not begun."""
    return Follower(spark, data, tmp_path / "checkpoint")


def test_stream_goes_on_where_it_stopped(follower: Follower, data: Data) -> None:
    """Bounded batches in order; after a restart only what is new, in a new partition too.

    That what was read has been deleted since, as the store does, is not even noticed.
    """
    data.seal(*([spans(number)] for number in range(5)))
    assert follower.run(maxSegmentsPerTrigger=2) == [named(0, 1), named(2, 3), named(4)]
    assert follower.offsets() == {"/default/traces/0": {"segment_seq": 5, "offset": 5}}
    for number in range(5):
        data.segment(number).unlink()
    data.seal([spans(5)])
    data.seal([spans(6)], [spans(7)], partition=1)
    assert follower.run(maxBytesPerTrigger=1) == [named(5), named(6), named(7)]
    assert follower.run() == []


def test_segments_deleted_unread_end_the_stream(follower: Follower, data: Data) -> None:
    """With file and messages in the error; or they are passed over, where that is wanted."""
    data.seal([spans(1)], [spans(2)], [spans(3)])
    data.segment(1).unlink()
    start = json.dumps({"/default/traces/0": {"segment_seq": 1, "offset": 1}})
    with pytest.raises(StreamingQueryException) as caught:
        follower.run(startingOffsets=start)
    assert f"{data.segment(1)} is gone: messages 1 to 1 were deleted unread" in str(caught.value)
    assert follower.run(startingOffsets=start, failOnDataLoss="false") == [named(3)]


def test_damaged_segment_ends_the_stream_by_name(follower: Follower, data: Data) -> None:
    """As a batch of others would, too."""
    data.seal([spans(1)], [spans(2)])
    flip(data.segment(1), -20)
    with pytest.raises(StreamingQueryException, match=f"Damaged: {data.segment(1)}"):
        follower.run()


def test_descriptors_of_a_repeated_batch_report_what_is_gone(
    follower: Follower, data: Data
) -> None:
    """So that a pipeline can tell what it has already from what is lost."""
    data.seal([spans(1)], [spans(2)])
    assert follower.run("state", rows="descriptors") == [["sealed", "sealed"]]
    follower.forget_last_commit()
    data.segment(0).unlink()
    data.seal([spans(3)])
    assert follower.run("state", rows="descriptors") == [["gone", "sealed"], ["sealed"]]
