"""Segments become rows, as a task of Spark does it."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo

from penstock.lake.rows import rows_of
from penstock.lake.schemas import TABLES, signal_of
from penstock.model import Topic
from penstock.model.errors import Damaged, OffsetUnavailable
from penstock.model.positions import Reached, SourcePartition
from penstock.otel import Signal
from penstock.pipeline.descriptors import DESCRIPTORS
from penstock.pipeline.filters import Predicate
from penstock.pipeline.reading import DescriptorReading, TableReading
from penstock.tiers.segments import DirectorySegments
from tests.otel.samples import encoded, full_request
from tests.pipeline.helpers import LOGS, TRACES, Data, named, spans
from tests.server import samples
from tests.store.helpers import flip


def reading(data: Data, table: str = "spans", **parts: Any) -> TableReading:
    """Of everything in the data directory."""
    schema = parts.pop("schema", TABLES[table])
    segments = DirectorySegments(data.root, signal=signal_of(table))
    filters = parts.pop("filters", ())
    predicate = Predicate(schema, filters)
    return TableReading(segments, table, schema, predicate, parts.pop("strict", True))


def rows(way: TableReading) -> list[dict[str, Any]]:
    """All rows of all segments."""
    batches = list(way.read(way.segments.since({})))
    assert all(batch.schema == way.schema and batch.num_rows for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def names(way: TableReading) -> list[str]:
    """The names of spans, sorted."""
    return sorted(row["name"] for row in rows(way))


@pytest.mark.parametrize("table", TABLES)
def test_rows_are_those_of_the_bundles(table: str, data: Data) -> None:
    """With something in every field, where they came from included."""
    signal = signal_of(table)
    requests = [encoded(full_request(signal, seed)) for seed in range(6)]
    data.seal(requests[:2], requests[2:], topic=Topic("shop", signal.value), partition=3)
    way = reading(data, table)
    expected = []
    for segment in way.segments.since({}):
        reader = way.segments.open(segment)
        for index in range(len(reader)):
            stored = reader.bundle(index)
            origin = segment.place.at(stored.first_offset)
            expected += rows_of(stored.bundle, signal, origin).to_pylist()
    assert repr(rows(way)) == repr(expected)  # as text, in which NaNs can be compared
    assert {row["_offset"] for row in expected} == set(range(6))


@pytest.mark.parametrize("table", TABLES)
def test_fewer_columns_have_the_same_values(table: str, data: Data) -> None:
    """Though slots that they are not made from are not even read."""
    signal = signal_of(table)
    requests = [encoded(full_request(signal, seed)) for seed in range(4)]
    data.seal(requests, topic=Topic("default", signal.value))
    whole = rows(reading(data, table))
    for field in TABLES[table]:
        part = rows(reading(data, table, schema=pa.schema([field])))
        assert repr(part) == repr([{field.name: row[field.name]} for row in whole]), field.name


def test_slots_that_no_column_needs_are_not_read(data: Data) -> None:
    """So that damage in them is not even noticed."""
    data.seal([spans(1, 2)])
    path = data.segment(0)
    flip(path, path.read_bytes().index(b"done"))
    with pytest.raises(Damaged):
        rows(reading(data))
    columns = pa.schema([TABLES["spans"].field(name) for name in ("name", "attributes")])
    assert names(reading(data, schema=columns)) == named(1, 2)


def test_filters_leave_rows_out(data: Data) -> None:
    """Before they cross to Java."""
    data.seal([spans(1, 2), spans(3, service="bank")], [spans(4)])
    by_service = EqualTo(("service_name",), "bank")
    assert names(reading(data, filters=[by_service])) == named(3)


def test_bundles_of_other_offsets_are_not_read(data: Data) -> None:
    """Not even where they are damaged."""
    data.seal([spans(1)], [spans(2)])
    path = data.segment(0)
    flip(path, path.read_bytes().index(b"span 1"))
    assert names(reading(data, filters=[EqualTo(("_offset",), 1)])) == named(2)


def test_damage_is_named_with_file_and_bundle(data: Data) -> None:
    """So that people know where to look, and `penstock fsck` can say more."""
    data.seal([spans(1)], [spans(2)])
    path = data.segment(1)
    flip(path, path.read_bytes().index(b"span 2"))
    with pytest.raises(Damaged, match=rf"^{path}: bundle 0: chunk 0 of stream \d+ is damaged"):
        rows(reading(data))


def test_damage_can_be_passed_over(data: Data, caplog: pytest.LogCaptureFixture) -> None:
    """Whole segments and single bundles; each is named in a warning."""
    data.seal([spans(1)], [spans(2)], [spans(3)])
    path = data.segment(1)
    flip(path, path.read_bytes().index(b"span 2"))
    flip(data.segment(2), -20)
    assert names(reading(data, strict=False)) == named(1)
    records = [each for each in caplog.records if each.levelno >= logging.WARNING]
    warned = [each.getMessage() for each in records]
    assert [str(data.segment(number)) in warned[number - 1] for number in (1, 2)] == [True, True]


def test_segment_that_goes_before_it_is_read_is_named(data: Data) -> None:
    """It was acknowledged by everybody else, and deleted."""
    data.seal([spans(1)], [spans(2)])
    way = reading(data)
    listed = way.segments.since({})
    data.segment(0).unlink()
    with pytest.raises(OffsetUnavailable, match=f"{data.segment(0)} is gone"):
        list(way.read(listed))
    tolerant = reading(data, strict=False)
    assert [batch.num_rows for batch in tolerant.read(listed)] == [1]


def test_segment_that_was_gone_when_listed_is_named(data: Data) -> None:
    """With the messages that nobody will read."""
    way = reading(data)
    gone = way.segments.gone(SourcePartition.parse("/default/traces/0"), Reached(2, 30), 40)
    with pytest.raises(OffsetUnavailable, match="messages 30 to 39 were deleted unread"):
        list(way.read([gone]))


def test_topic_of_another_name_gives_what_it_has(data: Data) -> None:
    """It may hold spans, and bundles without any."""
    own = Topic("default", "mine")
    data.seal([spans(1)], topic=own)
    assert names(reading(data)) == named(1)
    assert rows(reading(data, "logs")) == []


def test_descriptors_report_damage_instead_of_raising_it(data: Data) -> None:
    """Whoever follows them decides."""
    data.seal([spans(1)], [spans(2)])
    data.seal([samples.logs("hello")], topic=LOGS)
    flip(data.segment(1), -20)
    listed = DirectorySegments(data.root).since({})
    columns = pa.schema([DESCRIPTORS.field(name) for name in ("state", "topic")])
    predicate = Predicate(columns, [EqualTo(("topic",), str(TRACES))])
    [found] = DescriptorReading(columns, predicate).read(listed)
    assert found.to_pylist() == [
        {"state": "sealed", "topic": "/default/traces"},
        {"state": "damaged", "topic": "/default/traces"},
    ]


def test_reading_goes_to_the_workers(data: Data) -> None:
    """By pickling, filters and all."""
    data.seal([spans(1, 2)])
    way = reading(data, filters=[EqualTo(("name",), "span 2")])
    assert names(pickle.loads(pickle.dumps(way))) == named(2)  # noqa: S301


def test_signals_have_their_tables() -> None:
    """Every signal's rows can be read."""
    assert {signal_of(table) for table in TABLES} == set(Signal)
