"""Bundles that are not OTAP, and requests that were stored as they came."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.lake.rows import row_batches, rows_of
from penstock.model import slots
from penstock.model.bundle import Bundle
from penstock.model.errors import InvalidBundle
from penstock.otel import Signal
from tests.lake.rows.comparable import ORIGIN, check
from tests.lake.rows.samples import span_bundle, span_request
from tests.otel.samples import encoded, full_request

TRACES = Signal.TRACES
GOOD = span_bundle([0], [(0, "a", "x")])


def raw(signal: Signal, *messages: bytes) -> Bundle:
    """As a store without a decoder keeps them."""
    data = pa.array(messages, pa.binary())
    return Bundle({signal.raw_slot: pa.record_batch({"data": data})})


@pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
def test_raw_requests_are_decoded(signal: Signal) -> None:
    """Each has the offset of its own message."""
    requests = [full_request(signal, 1), signal.request_class(), full_request(signal, 2)]
    check(signal, raw(signal, *map(encoded, requests)), requests)


def test_raw_requests_are_decoded_beside_other_bundles() -> None:
    """Which are joined with their like, but not with them."""
    bundles = [GOOD, raw(TRACES, encoded(span_request(2))), raw(TRACES), GOOD, GOOD]
    pairs = [(bundle, ORIGIN.after(number)) for number, bundle in enumerate(bundles)]
    offsets = [batch.column("_offset").to_pylist() for batch in row_batches(pairs, TRACES)]
    assert offsets == [[100], [101, 101], [103, 104]]


def test_a_raw_message_that_is_no_request_is_named() -> None:
    """By the offset of its bundle."""
    bundle = raw(TRACES, encoded(span_request()), b"\xff\xff")
    with pytest.raises(InvalidBundle, match=r"offset 100 .*no request"):
        rows_of(bundle, TRACES, ORIGIN)


def test_a_bundle_of_another_signal_has_no_rows() -> None:
    """It is not the table's."""
    assert rows_of(GOOD, Signal.LOGS, ORIGIN).num_rows == 0


def without(bundle: Bundle, slot: int, column: str) -> Bundle:
    return Bundle({**bundle.slots, slot: bundle[slot].drop_columns(column)})


def with_column(bundle: Bundle, slot: int, column: str, array: pa.Array) -> Bundle:
    table = bundle[slot]
    return Bundle(
        {
            **bundle.slots,
            slot: table.set_column(table.schema.get_field_index(column), column, array),
        }
    )


def with_messages(*records: int) -> Bundle:
    """A span in messages that say to have so many."""
    counts = pa.record_batch({"records": pa.array(records, pa.uint16())})
    return Bundle({**GOOD.slots, slots.MESSAGE_RECORDS: counts})


@pytest.mark.parametrize(
    "bundle",
    [
        without(GOOD, slots.SPAN_ATTRS, "parent_id"),
        without(GOOD, slots.SPAN_ATTRS, "key"),
        with_column(GOOD, slots.SPAN_ATTRS, "key", pa.nulls(1, pa.string())),
        with_column(GOOD, slots.SPANS, "start_time_unix_nano", pa.array(["now"])),
        with_column(GOOD, slots.SPANS, "name", pa.array([[1]])),
    ],
)
def test_what_is_not_otap_is_refused(bundle: Bundle) -> None:
    """With the offset, alone and among others; those before it have given their rows."""
    with pytest.raises(InvalidBundle, match="offset 100"):
        rows_of(bundle, TRACES, ORIGIN)
    found = []
    pair = [(GOOD, ORIGIN), (bundle, ORIGIN.after(1))]
    with pytest.raises(InvalidBundle, match="offset 101"):
        found.extend(row_batches(pair, TRACES))
    assert sum(batch.num_rows for batch in row_batches(pair[:1], TRACES)) == 1


@pytest.mark.parametrize("records", [0, 2])
def test_messages_must_have_all_records(records: int) -> None:
    """Or nobody could say which offset a row has."""
    with pytest.raises(InvalidBundle, match="1 records are not as many"):
        rows_of(with_messages(records), TRACES, ORIGIN)


def test_nested_values_that_are_not_cbor_are_refused() -> None:
    """Nothing else of the bundle is given out."""
    table = pa.record_batch(
        {
            "parent_id": pa.array([0], pa.uint16()),
            "key": pa.array(["a"]),
            "type": pa.array([6], pa.uint8()),
            "ser": pa.array([b"\xff"]),
        }
    )
    with pytest.raises(InvalidBundle, match=r"offset 100 .*CBOR"):
        rows_of(Bundle({**GOOD.slots, slots.SPAN_ATTRS: table}), TRACES, ORIGIN)


def test_a_point_without_a_metric_is_kept() -> None:
    """Nobody knows its name, but its value."""
    points = pa.record_batch(
        {
            "id": pa.array([0], pa.uint32()),
            "parent_id": pa.array([5], pa.uint16()),
            "time_unix_nano": pa.array([1000], pa.timestamp("ns")),
            "int_value": pa.array([7]),
        }
    )
    metrics = pa.record_batch(
        {
            "id": pa.array([0], pa.uint16()),
            "metric_type": pa.array([1], pa.uint8()),
            "name": pa.array(["m"]),
        }
    )
    bundle = Bundle({slots.UNIVARIATE_METRICS: metrics, slots.NUMBER_DATA_POINTS: points})
    [row] = rows_of(bundle, Signal.METRICS, ORIGIN).to_pylist()
    assert (row["name"], row["value_int"]) == (None, 7)
