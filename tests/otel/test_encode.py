"""Bundles that were not made here, or came back from a segment with their tables changed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import types

from penstock.model import slots
from penstock.model.bundle import Bundle
from penstock.model.errors import InvalidBundle
from penstock.otel import Signal, encode_bundle
from tests.otel.samples import bundle_of, canonical, encoded, full_request

SIGNALS = pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)


def with_table(bundle: Bundle, slot: int, batch: pa.RecordBatch) -> Bundle:
    """The bundle with one table exchanged."""
    return Bundle({**bundle.slots, slot: batch})


def with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """The table with a column more, or exchanged."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {name: column}
    return pa.RecordBatch.from_pydict(columns)


@SIGNALS
def test_the_order_of_child_tables_does_not_count(signal: Signal) -> None:
    """Only that of the rows of one parent does."""
    request = full_request(signal, 5)
    bundle = bundle_of(signal, request)
    for slot, batch in bundle.slots.items():
        if "parent_id" in batch.schema.names and slot != 59:
            order = pc.sort_indices(batch.select(["parent_id"]), [("parent_id", "descending")])
            bundle = with_table(bundle, slot, batch.take(order))
    assert canonical(signal, encode_bundle(signal, bundle)) == canonical(signal, encoded(request))


@SIGNALS
def test_dictionaries_may_be_anywhere(signal: Signal) -> None:
    """Other writers of OTAP use them for more columns, and segments widen their indexes."""
    request = full_request(signal, 6)
    bundle = bundle_of(signal, request)
    for slot, batch in bundle.slots.items():
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            plain = not types.is_nested(column.type) and not types.is_dictionary(column.type)
            if plain and name != "id":
                batch = with_column(batch, name, column.dictionary_encode())
        bundle = with_table(bundle, slot, batch)
    assert canonical(signal, encode_bundle(signal, bundle)) == canonical(signal, encoded(request))


@SIGNALS
def test_tables_without_dictionaries_are_understood(signal: Signal) -> None:
    """They are an optimisation."""
    request = full_request(signal, 7)
    bundle = bundle_of(signal, request)
    for slot, batch in bundle.slots.items():
        columns = [
            column.dictionary_decode() if types.is_dictionary(column.type) else column
            for column in batch.columns
        ]
        batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        bundle = with_table(bundle, slot, batch)
    assert canonical(signal, encode_bundle(signal, bundle)) == canonical(signal, encoded(request))


def log_bundle(columns: dict[str, Any], attributes: dict[str, Any] | None = None) -> Bundle:
    """Tables as another writer might make them."""
    tables = {slots.LOGS: pa.RecordBatch.from_pydict(columns)}
    if attributes is not None:
        tables[slots.LOG_ATTRS] = pa.RecordBatch.from_pydict(attributes)
    return Bundle(tables)


def log_records(bundle: Bundle) -> list[Any]:
    """The records that come out, with the resources and scopes they are in."""
    request: Any = Signal.LOGS.request_class.FromString(encode_bundle(Signal.LOGS, bundle))
    return [
        (outer, inner, record)
        for outer, resource in enumerate(request.resource_logs)
        for inner, scope in enumerate(resource.scope_logs)
        for record in scope.log_records
    ]


def test_ids_need_not_be_row_numbers() -> None:
    """Attributes find their record by its id; a null id has none."""
    bundle = log_bundle(
        {"id": pa.array([7, None, 3], pa.uint16()), "event_name": ["a", "b", "c"]},
        {
            "parent_id": pa.array([3, 7, 7], pa.uint16()),
            "key": ["x", "y", "z"],
            "type": pa.array([1, 1, 2], pa.uint8()),
            "str": ["X", "Y", None],
            "int": pa.array([None, None, 5]),
        },
    )
    records = [record for *_, record in log_records(bundle)]
    assert [[pair.key for pair in record.attributes] for record in records] == [
        ["y", "z"],
        [],
        ["x"],
    ]
    assert records[0].attributes[1].value.int_value == 5


def test_only_the_column_of_a_row_s_type_counts() -> None:
    """OTAP says to ignore the others; without its column a value is empty."""
    bundle = log_bundle(
        {"id": pa.array([0], pa.uint16())},
        {
            "parent_id": pa.array([0, 0, 0], pa.uint16()),
            "key": ["a", "b", "c"],
            "type": pa.array([1, 2, 4], pa.uint8()),
            "str": ["s", "ignored", "ignored"],
            "int": pa.array([1, 2, 3]),
        },
    )
    [(_, _, record)] = log_records(bundle)
    found = [pair.value.WhichOneof("value") for pair in record.attributes]
    assert found == ["string_value", "int_value", None]


def test_records_of_one_resource_need_not_follow_each_other() -> None:
    """The order of the records is kept, and the resource appears again."""
    ids = pa.StructArray.from_arrays([pa.array([1, 1, 0, 1], pa.uint16())], names=["id"])
    bundle = log_bundle({"resource": ids, "event_name": ["a", "b", "c", "d"]})
    found = [(outer, inner, record.event_name) for outer, inner, record in log_records(bundle)]
    assert found == [(0, 0, "a"), (0, 0, "b"), (1, 0, "c"), (2, 0, "d")]


def test_records_without_resource_or_scope_are_in_one() -> None:
    """Both columns are optional."""
    found = log_records(log_bundle({"event_name": ["a", "b"]}))
    assert [(outer, inner) for outer, inner, _ in found] == [(0, 0), (0, 0)]


def test_a_resource_may_have_nothing_but_attributes() -> None:
    """Other writers leave out what is 0."""
    ids = pa.StructArray.from_arrays([pa.array([4, 9], pa.uint16())], names=["id"])
    attributes = {
        "parent_id": pa.array([9], pa.uint16()),
        "key": ["service.name"],
        "type": pa.array([1], pa.uint8()),
        "str": ["shop"],
    }
    bundle = log_bundle({"resource": ids, "event_name": ["a", "b"]})
    bundle = with_table(bundle, slots.RESOURCE_ATTRS, pa.RecordBatch.from_pydict(attributes))
    request: Any = Signal.LOGS.request_class.FromString(encode_bundle(Signal.LOGS, bundle))
    first, second = request.resource_logs
    assert not first.HasField("resource")
    assert second.resource.attributes[0].value.string_value == "shop"


def test_a_nested_value_that_is_damaged_is_refused() -> None:
    """Nothing is made up in its place."""
    bundle = log_bundle(
        {"id": pa.array([0], pa.uint16())},
        {
            "parent_id": pa.array([0], pa.uint16()),
            "key": ["a"],
            "type": pa.array([6], pa.uint8()),
            "ser": [b"\x82\x01"],
        },
    )
    with pytest.raises(InvalidBundle, match="not CBOR"):
        encode_bundle(Signal.LOGS, bundle)


@SIGNALS
def test_a_bundle_without_records_is_an_empty_request(signal: Signal) -> None:
    """Whatever else is in it."""
    assert encode_bundle(signal, Bundle({})) == b""
