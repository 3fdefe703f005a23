"""The segment that is being filled."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from penstock.model.bundle import Bundle
from penstock.model.errors import InvalidBundle
from penstock.model.settings import SegmentSettings
from penstock.segment import OpenSegment
from tests.segment.helpers import SETTINGS, TABLE, column, contents, fill


def bundle(array: pa.Array) -> Bundle:
    """A bundle whose slot 0 has one column."""
    return Bundle(column(array)[0])


def words(first: int, count: int) -> pa.Array:
    """A dictionary column of `count` different words."""
    return pa.array([f"{number}" for number in range(first, first + count)]).dictionary_encode()


def test_an_empty_segment_is_nothing_yet() -> None:
    """It has no offsets."""
    segment = OpenSegment(SETTINGS, TABLE)
    assert (segment.bundles, segment.nbytes) == (0, 0)
    assert (segment.first_offset, segment.end_offset) == (0, 0)
    assert list(segment) == []
    assert not segment.is_full()


def test_bundles_are_kept_with_their_place() -> None:
    """Offsets, time and index; items are counted by the slot table."""
    segment = fill([{0: pa.record_batch({"a": [1, 2]}), 1: pa.record_batch({"b": [1]})}, {}])
    first, second = segment
    assert (first.bundle.items, first.first_offset, first.end_offset) == (2, 100, 102)
    assert (second.bundle.items, second.bundle_index, second.ingested_at_ns) == (0, 1, 1001)
    assert (segment.bundles, segment.first_offset, segment.end_offset) == (2, 100, 104)
    assert segment.nbytes == 24


def test_a_bundle_is_read_as_it_was_added() -> None:
    """Columns of hot data stand in their own order and have their own types."""
    first = pa.record_batch({"a": pa.array([1]), "b": pa.array(["x"]).dictionary_encode()})
    second = first.select(["b", "a"])
    segment = fill([{0: first}, {0: second}])
    assert list(segment)[1].bundle == Bundle({0: second})
    assert len(segment.streams) == 1


def test_the_bundles_own_count_of_items_is_kept() -> None:
    """It is not counted again."""
    segment = fill([Bundle({0: pa.record_batch({"a": [1]})}, items=17)])
    assert segment.manifest[0].items == next(iter(segment)).bundle.items == 17


def test_streams_appear_in_the_order_of_their_first_batch() -> None:
    """By slot within a bundle."""
    a, b = pa.record_batch({"a": [1]}), pa.record_batch({"b": [1]})
    segment = fill([{5: a, 2: a}, {2: b, 5: a}])
    assert [stream.slot for stream in segment.streams] == [2, 5, 2]
    assert [len(stream.batches) for stream in segment.streams] == [1, 2, 1]


def test_a_segment_is_full_at_its_size() -> None:
    """Measured in memory."""
    settings = SegmentSettings(target_bytes=64 * 1024)
    segment = fill(column(pa.array(range(8000))), settings)
    assert not segment.is_full()
    segment.add(bundle(pa.array(range(200))), first_offset=102, messages=1, ingested_at_ns=0)
    assert segment.is_full()


def test_too_many_streams_are_refused() -> None:
    """The segment is full with as many as it may have."""
    settings = SegmentSettings(max_streams=64)
    batches = [pa.record_batch({f"{number}": [1]}) for number in range(65)]
    segment = fill([{0: batch} for batch in batches[:63]], settings)
    assert not segment.is_full()
    assert not segment.accepts(Bundle({0: batches[63], 1: batches[64]}))
    segment.add(Bundle({0: batches[63]}), first_offset=0, messages=1, ingested_at_ns=0)
    assert segment.is_full()
    assert segment.accepts(Bundle({0: batches[5]}))


def test_an_empty_segment_accepts_anything() -> None:
    """Else some bundles could never be stored."""
    settings = SegmentSettings(dictionary_values=1)
    assert OpenSegment(settings, TABLE).accepts(bundle(words(0, 100)))


def test_a_segment_is_sealed_before_a_dictionary_outgrows_its_limit() -> None:
    """Known values still fit."""
    settings = SegmentSettings(dictionary_values=10)
    segment = fill(column(words(0, 6), words(0, 6)), settings)
    assert not segment.is_full()
    assert segment.accepts(bundle(words(2, 8)))
    assert not segment.accepts(bundle(words(2, 9)))
    segment.add(bundle(words(2, 8)), first_offset=104, messages=1, ingested_at_ns=0)
    assert segment.is_full()


def test_a_bundle_over_the_limit_by_itself_does_not_fill_the_segment() -> None:
    """Its column becomes plain; sealing early would gain nothing."""
    settings = SegmentSettings(dictionary_values=3)
    segment = fill(column(words(0, 4)), settings)
    assert not segment.is_full()
    assert segment.accepts(bundle(words(0, 100)))


def test_columns_without_a_common_type_are_streams_of_their_own() -> None:
    """However often the types alternate, there are as many streams as schemas."""
    whole, half = pa.record_batch({"a": [1]}), pa.record_batch({"a": [0.5]})
    segment = fill([{0: batch} for batch in (whole, half) * 50])
    assert [stream.schema.field("a").type for stream in segment.streams] == [
        pa.int64(),
        pa.float64(),
    ]
    assert segment.accepts(Bundle({0: pa.record_batch({"a": ["text"]})}))


def test_adding_what_is_not_accepted_changes_nothing() -> None:
    """It is an error of the caller."""
    settings = SegmentSettings(max_streams=64)
    segment = fill([{0: pa.record_batch({"a": [1]})}], settings)
    bad = Bundle({slot: pa.record_batch({"b": [1]}) for slot in range(64)})
    with pytest.raises(InvalidBundle, match="seal it first"):
        segment.add(bad, first_offset=0, messages=1, ingested_at_ns=0)
    assert (segment.bundles, len(segment.streams), segment.nbytes) == (1, 1, 8)


def test_readers_see_whole_bundles_while_others_are_added() -> None:
    """Every look is a snapshot."""
    segment = OpenSegment(SETTINGS, TABLE)
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            before = segment.bundles
            seen = list(segment)
            expected = [{0: {"d": [number]}} for number in range(len(seen))]
            if len(seen) < before or [contents(one.bundle) for one in seen] != expected:
                wrong.append(seen)

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(100):
        segment.add(bundle(pa.array([number])), first_offset=number, messages=1, ingested_at_ns=0)
    stop.set()
    thread.join()
    assert not wrong
