"""Which segments a stream reads next, without Spark around it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
)

from penstock.pipeline.descriptors import DESCRIPTORS
from penstock.pipeline.filters import Predicate
from penstock.pipeline.offsets import encode_offsets
from penstock.pipeline.options import SourceOptions
from penstock.pipeline.reading import DescriptorReading
from penstock.pipeline.stream import SegmentStreamReader
from tests.pipeline.listing import KEY, OTHER, Listing, at, segment

EVERYTHING = ReadAllAvailable()


def stream(listing: Listing, **options: str) -> SegmentStreamReader:
    """A stream of descriptors of what is listed."""
    parsed = SourceOptions.parse({"path": "/data", "partitionBytes": "1", **options})
    reading = DescriptorReading(DESCRIPTORS, Predicate(DESCRIPTORS))
    return SegmentStreamReader(listing, reading, parsed)


def offsets(**positions: int) -> dict[str, Any]:
    """Of partition 0 (`own`) and 1 (`other`), ten messages for each segment."""
    keys = {"own": KEY, "other": OTHER}
    return encode_offsets({keys[k]: at(seq, seq * 10) for k, seq in positions.items()})


def read(reader: SegmentStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    """The partition and number of every segment that the batch reads."""
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    rows = pa.Table.from_batches(batches, DESCRIPTORS).to_pylist()
    return [(row["partition"], row["segment_seq"]) for row in rows]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", {}),
        ("latest", offsets(own=4, other=6)),
        (json.dumps(offsets(own=3)), offsets(own=3)),
    ],
)
def test_stream_begins_where_it_is_told(start: str, expected: dict[str, Any]) -> None:
    """At the first of each partition, at what is still to come, or anywhere."""
    listing = Listing([segment(2), segment(3), segment(5, key=OTHER)])
    assert stream(listing, startingOffsets=start).initialOffset() == expected


def test_batch_ends_behind_everything_that_is_sealed() -> None:
    """And the next one begins there."""
    listing = Listing([segment(0), segment(1)])
    reader = stream(listing)
    end = reader.latestOffset(offsets(own=0), EVERYTHING)
    assert end == offsets(own=2)
    assert read(reader, offsets(own=0), end) == [(0, 0), (0, 1)]
    assert reader.latestOffset(end, EVERYTHING) == end
    listing.segments.append(segment(2))
    assert reader.latestOffset(end, EVERYTHING) == offsets(own=3)


@pytest.mark.parametrize(
    ("options", "limit", "segments"),
    [
        ({}, ReadAllAvailable(), 5),
        ({"maxSegmentsPerTrigger": "2"}, ReadMaxFiles(2), 2),
        ({"maxBytesPerTrigger": "300"}, ReadMaxBytes(300), 3),
        ({"maxSegmentsPerTrigger": "2", "maxBytesPerTrigger": "100"}, ReadMaxFiles(2), 1),
    ],
)
def test_options_bound_a_batch(options: dict[str, str], limit: ReadLimit, segments: int) -> None:
    """Spark hands the limit back that the source asked for; both bounds hold."""
    reader = stream(Listing([segment(number) for number in range(5)]), **options)
    assert reader.getDefaultReadLimit() == limit
    assert reader.latestOffset(offsets(own=0), limit) == offsets(own=segments)


def test_everything_means_everything() -> None:
    """A query that runs once ignores the bounds, as Spark's own sources do."""
    reader = stream(Listing([segment(number) for number in range(5)]), maxSegmentsPerTrigger="2")
    assert reader.latestOffset(offsets(own=0), EVERYTHING) == offsets(own=5)


def test_what_comes_after_available_now_is_left() -> None:
    """Partitions that appear included; else such a query might never end."""
    listing = Listing([segment(0)])
    reader = stream(listing)
    reader.prepareForTriggerAvailableNow()
    listing.segments += [segment(1), segment(0, key=OTHER)]
    end = reader.latestOffset(offsets(own=0), EVERYTHING)
    assert end == offsets(own=1)
    assert reader.latestOffset(end, EVERYTHING) == end


@pytest.mark.parametrize("start", ["earliest", "latest", json.dumps(offsets(own=1, other=1))])
def test_first_batch_is_the_same_when_it_is_run_again(start: str) -> None:
    """Spark keeps where it ends, and asks the source once more where it began."""
    listing = Listing([segment(0), segment(0, key=OTHER)])
    reader = stream(listing, startingOffsets=start)
    begin = reader.initialOffset()
    listing.segments += [segment(1), segment(2)]
    end = reader.latestOffset(begin, EVERYTHING)
    expected = read(reader, begin, end)
    listing.segments += [segment(3), segment(1, key=OTHER)]
    again = stream(listing, startingOffsets=start)
    assert read(again, again.initialOffset(), end) == expected
    assert read(again, end, again.latestOffset(end, EVERYTHING)) == [(0, 3), (1, 1)]


def test_partition_of_which_nothing_is_new_is_not_read_again() -> None:
    """Though its offsets still say where its first batch began."""
    listing = Listing([segment(0), segment(0, key=OTHER)])
    reader = stream(listing)
    first = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    listing.segments.append(segment(1))
    assert read(reader, first, reader.latestOffset(first, EVERYTHING)) == [(0, 1)]


def test_new_partition_is_read_from_its_first_segment() -> None:
    """And its first batch is the same when it is run again, whatever has come since."""
    listing = Listing([segment(0)])
    reader = stream(listing)
    start = reader.initialOffset()
    listing.segments += [segment(3, key=OTHER), segment(4, key=OTHER)]
    end = reader.latestOffset(start, EVERYTHING)
    assert end[str(OTHER)] == {
        "segment_seq": 5,
        "offset": 50,
        "first": {"segment_seq": 3, "offset": 30},
    }
    listing.segments.append(segment(5, key=OTHER))
    assert read(stream(listing), start, end) == [(0, 0), (1, 3), (1, 4)]
    assert read(stream(listing), end, stream(listing).latestOffset(end, EVERYTHING)) == [(1, 5)]


def test_progress_shows_what_waits() -> None:
    """Spark reports it beside what the batch took."""
    reader = stream(Listing([segment(0), segment(1)]), maxSegmentsPerTrigger="1")
    assert reader.reportLatestOffset() is None
    reader.latestOffset(offsets(own=0), ReadMaxFiles(1))
    assert reader.reportLatestOffset() == offsets(own=2)


def test_offsets_survive_spark() -> None:
    """Which keeps them as text, and compares that."""
    reader = stream(Listing([segment(0), segment(0, key=OTHER)]))
    end = reader.latestOffset({}, EVERYTHING)
    again = json.loads(json.dumps(end))
    assert json.dumps(reader.latestOffset(again, EVERYTHING)) == json.dumps(end)
