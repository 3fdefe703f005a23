"""Segments that earlier versions wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.model.slots import LOG_ATTRS, LOGS
from penstock.segment import SegmentInfo, SegmentReader, read_info, segment_name
from penstock.storage import LocalFiles
from tests.segment import fixture_v1, fixture_v2
from tests.segment.helpers import contents

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.mark.parametrize("segment_seq", fixture_v1.COMPRESSIONS)
def test_version_1_is_read(segment_seq: int) -> None:
    """Every bundle, every table and every statistic, in each compression."""
    path = FIXTURES / "segment-v1" / segment_name(segment_seq)
    reader = SegmentReader.open(LocalFiles(), path)
    expected = fixture_v1.bundles()
    assert [contents(reader.bundle(n).bundle) for n in range(4)] == [*map(contents, expected)]
    assert [reader.bundle(n).bundle.items for n in range(4)] == [5, 2, 4, 0]
    assert [reader.bundle(n).first_offset for n in range(4)] == [0, 10, 20, 30]
    assert [reader.bundle(n).messages for n in range(4)] == [1, 2, 3, 4]
    assert [(s.slot, s.chunks, s.rows, s.omitted) for s in reader.streams] == [
        (LOGS, 2, 5, (3,)),
        (LOG_ATTRS, 2, 7, ()),
        (LOGS, 1, 4, ()),
    ]
    assert [s.event_times_ns for s in reader.streams] == [(0, 4000), None, (5000, 8000)]
    assert reader.schema(LOGS).field("number").type == pa.int64()
    assert reader.read_all(LOGS)["number"].to_pylist() == list(range(9))
    assert reader.store_id == fixture_v1.STORE_ID
    assert reader.verify() == []


def test_the_trailer_of_version_1_is_read() -> None:
    """As the store does when it opens."""
    path = FIXTURES / "segment-v1" / segment_name(3)
    sealed_at_ns = fixture_v1.SEALED_AT_NS
    assert read_info(LocalFiles(), path) == SegmentInfo(
        segment_seq=3,
        first_offset=0,
        end_offset=34,
        bundles=4,
        items=11,
        size=path.stat().st_size,
        first_ingested_at_ns=sealed_at_ns - 1000,
        last_ingested_at_ns=sealed_at_ns - 997,
        sealed_at_ns=sealed_at_ns,
    )


def test_the_same_bundles_still_make_segments_of_the_same_contents(tmp_path: Path) -> None:
    """Streams, fingerprints and manifest are those of the fixture; Arrow's own bytes may differ."""
    fixture_v1.write(tmp_path)
    old, new = (
        SegmentReader.open(LocalFiles(), folder / segment_name(3))
        for folder in (FIXTURES / "segment-v1", tmp_path)
    )
    assert [s.fingerprint for s in new.streams] == [s.fingerprint for s in old.streams]
    assert [new.manifest(n) for n in range(4)] == [old.manifest(n) for n in range(4)]


def test_version_2_is_read() -> None:
    """Two families of one slot, and every bundle as it was."""
    path = FIXTURES / "segment-v2" / segment_name(fixture_v2.SEGMENT_SEQ)
    reader = SegmentReader.open(LocalFiles(), path)
    expected = fixture_v2.bundles()
    assert [contents(reader.bundle(n).bundle) for n in range(4)] == [*map(contents, expected)]
    assert (reader.version, reader.slots) == (2, (LOGS,))
    assert [schema.field("number").type for schema in reader.schemas(LOGS)] == [
        pa.int64(),
        pa.float64(),
    ]
    found = [batch["number"].to_pylist() for batch in reader.batches(LOGS)]
    assert found == [[1, 2**62], [0.5], [3], [4]]
    assert reader.verify() == []
