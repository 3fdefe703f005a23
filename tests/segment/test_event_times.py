"""The earliest and the latest event of a stream."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.segment.writer import event_times_ns


def batches(kind: pa.DataType, *columns: list[int | None]) -> list[pa.RecordBatch]:
    """Batches with a column `time`."""
    return [pa.record_batch({"time": pa.array(values, kind)}) for values in columns]


@pytest.mark.parametrize(
    ("kind", "unit_ns"),
    [
        (pa.timestamp("ns"), 1),
        (pa.timestamp("us", "UTC"), 1000),
        (pa.timestamp("ms"), 10**6),
        (pa.timestamp("s", "Europe/Prague"), 10**9),
        (pa.int64(), 1),
    ],
)
def test_times_of_every_unit_are_nanoseconds(kind: pa.DataType, unit_ns: int) -> None:
    """Over all batches, nulls and empty batches left out."""
    found = event_times_ns(batches(kind, [5, None, 3], [], [None], [-4]), "time")
    assert found == (-4 * unit_ns, 5 * unit_ns)


@pytest.mark.parametrize(
    "kind", [pa.uint64(), pa.int32(), pa.date32(), pa.dictionary(pa.int8(), pa.int64())]
)
def test_other_types_are_no_times(kind: pa.DataType) -> None:
    """Nobody knows what they would mean."""
    assert event_times_ns(batches(kind, [1]), "time") is None


def test_without_times_there_is_no_range() -> None:
    """No such column, only nulls, no rows, or a slot without event times."""
    assert event_times_ns(batches(pa.int64(), [1]), "other") is None
    assert event_times_ns(batches(pa.int64(), [None], []), "time") is None
    assert event_times_ns(batches(pa.int64(), [1]), None) is None


def test_times_beyond_64_bits_of_nanoseconds_count_as_the_nearest() -> None:
    """They overflow nothing."""
    far = 2**62
    assert event_times_ns(batches(pa.timestamp("s"), [far, -far]), "time") == (
        -(2**63),
        2**63 - 1,
    )
