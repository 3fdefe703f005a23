"""Three bundles with drifting schemas, and the streams and the manifest that they become.

Bundle 0 has logs and their attributes. Bundle 1 adds attributes of scopes and resources. Bundle 2
has a new column in its logs, another in their attributes, and no scopes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.model.bundle import Bundle
from penstock.model.slots import LOG_ATTRS, LOGS, OTAP, RESOURCE_ATTRS, SCOPE_ATTRS
from penstock.segment.tables import Ref
from tests.segment.helpers import contents, sealed

if TYPE_CHECKING:
    from penstock.segment import SegmentReader

DICTIONARY = pa.dictionary(pa.uint8(), pa.string())


def logs(rows: int, *, with_severity: bool = False) -> pa.RecordBatch:
    """Schema L1; with severities L2."""
    columns = {
        "id": pa.array(range(rows), pa.uint16()),
        "time_unix_nano": pa.array([1000 * row for row in range(rows)], pa.timestamp("ns")),
    }
    if with_severity:
        columns["severity_text"] = pa.array(["INFO"] * rows, DICTIONARY)
    return pa.record_batch(columns)


def attributes(rows: int, *, with_integers: bool = False) -> pa.RecordBatch:
    """Schema A1, R1 and S1; with integers A2."""
    columns = {
        "parent_id": pa.array(range(rows), pa.uint16()),
        "key": pa.array([f"key {row % 3}" for row in range(rows)], DICTIONARY),
    }
    if with_integers:
        columns["int"] = pa.array([None] * rows, pa.int64())
    return pa.record_batch(columns)


BUNDLES = [
    Bundle({LOGS: logs(37), LOG_ATTRS: attributes(37)}),
    Bundle(
        {
            LOGS: logs(54),
            LOG_ATTRS: attributes(54),
            SCOPE_ATTRS: attributes(2),
            RESOURCE_ATTRS: attributes(1),
        }
    ),
    Bundle(
        {
            LOGS: logs(49, with_severity=True),
            LOG_ATTRS: attributes(49, with_integers=True),
            RESOURCE_ATTRS: attributes(1),
        }
    ),
]

L1, A1, R1, S1, L2, A2 = range(6)
"""Streams in the order in which they appear: bundle by bundle, slot by slot."""


@pytest.fixture(name="reader")
def sealed_example(tmp_path: Path) -> SegmentReader:
    """The three bundles in a segment."""
    return sealed(tmp_path, BUNDLES, slots=OTAP)


def test_there_is_one_stream_for_each_slot_and_schema(reader: SegmentReader) -> None:
    """With the chunks and rows of all its bundles."""
    streams = [(entry.slot, entry.chunks, entry.rows) for entry in reader.streams]
    assert streams == [
        (LOGS, 2, 91),
        (LOG_ATTRS, 2, 91),
        (RESOURCE_ATTRS, 2, 2),
        (SCOPE_ATTRS, 1, 2),
        (LOGS, 1, 49),
        (LOG_ATTRS, 1, 49),
    ]
    assert reader.streams[R1].fingerprint == reader.streams[S1].fingerprint
    assert len({reader.streams[number].fingerprint for number in (L1, A1, L2, A2)}) == 4


def test_the_manifest_says_where_each_slot_of_a_bundle_is(reader: SegmentReader) -> None:
    """Slots that a bundle lacks are not in it."""
    refs = [set(reader.manifest(index).refs) for index in range(3)]
    assert refs == [
        {Ref(LOGS, L1, 0), Ref(LOG_ATTRS, A1, 0)},
        {
            Ref(LOGS, L1, 1),
            Ref(LOG_ATTRS, A1, 1),
            Ref(SCOPE_ATTRS, S1, 0),
            Ref(RESOURCE_ATTRS, R1, 0),
        },
        {Ref(LOGS, L2, 0), Ref(LOG_ATTRS, A2, 0), Ref(RESOURCE_ATTRS, R1, 1)},
    ]


def test_every_bundle_comes_back(reader: SegmentReader) -> None:
    """Rows, types and items."""
    for index, bundle in enumerate(BUNDLES):
        stored = reader.bundle(index)
        assert contents(stored.bundle) == contents(bundle)
        assert stored.bundle.items == bundle[LOGS].num_rows
        for slot, batch in bundle.slots.items():
            assert stored.bundle[slot].schema == batch.schema


def test_the_logs_of_all_bundles_read_as_one_table(reader: SegmentReader) -> None:
    """The column that came last is null before; the bitmap of the stream says so."""
    table = reader.read_all(LOGS)
    assert table.num_rows == 37 + 54 + 49
    assert table.schema.names == ["id", "time_unix_nano", "severity_text"]
    assert table["severity_text"].to_pylist() == [None] * 91 + ["INFO"] * 49
    assert [reader.streams[number].omitted for number in (L1, L2)] == [(2,), ()]


def test_streams_know_when_their_events_happened(reader: SegmentReader) -> None:
    """Where their slot has event times."""
    assert reader.streams[L1].event_times_ns == (0, 53_000)
    assert reader.streams[L2].event_times_ns == (0, 48_000)
    assert reader.streams[A1].event_times_ns is None
