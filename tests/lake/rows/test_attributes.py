"""Attributes go to their parents, whatever the order and form of their table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.lake.rows import rows_of
from penstock.lake.rows.attributes import attributes_of
from penstock.model import slots
from penstock.model.bundle import Bundle
from penstock.otel import Signal
from tests.lake.rows.comparable import ORIGIN, check, row_of
from tests.lake.rows.samples import attribute_table, only_span, span_bundle, span_request
from tests.otel.samples import bundle_of

IDS = pa.array([0, 1, 2], pa.uint16())


def maps(table: pa.RecordBatch | None, ids: pa.Array = IDS) -> list[dict[str, str] | None]:
    """The attributes of parents 0, 1 and 2."""
    texts = attributes_of(table, ids).texts
    texts.validate(full=True)
    found = [None if pairs is None else dict(pairs) for pairs in texts.to_pylist()]
    assert sum(len(pairs or ()) for pairs in found) == len(texts.keys), "a key is there twice"
    return found


def test_the_last_of_equal_keys_wins() -> None:
    """Readers of maps refuse keys that are there twice."""
    request = span_request()
    for text in ("first", "second", "last"):
        only_span(request).attributes.add(key="a").value.string_value = text
        only_span(request).attributes.add(key=text).value.int_value = 1
    row = row_of(Signal.TRACES, request)
    assert row["attributes"] == {"a": "last", "first": "1", "second": "1", "last": "1"}
    assert row["attribute_types"] == dict.fromkeys(("first", "second", "last"), "int")


def test_the_last_of_equal_keys_has_the_type() -> None:
    """That of the value that is gone is gone with it."""
    request = span_request()
    only_span(request).attributes.add(key="a").value.int_value = 7
    only_span(request).attributes.add(key="a").value.string_value = "seven"
    row = row_of(Signal.TRACES, request)
    assert (row["attributes"], row["attribute_types"]) == ({"a": "seven"}, None)


@pytest.mark.parametrize("different", [3, 300, 70_000])
def test_equal_keys_are_found_among_many(different: int) -> None:
    """However many bytes the index of a key takes."""
    pairs = [(0, f"key {number}", "x") for number in range(different)]
    pairs += [(1, f"key {different - 1}", "lost"), (1, f"key {different - 1}", "kept")]
    found = maps(attribute_table(pairs))
    assert len(found[0] or {}) == different
    assert found[1:] == [{f"key {different - 1}": "kept"}, None]


def test_a_dictionary_may_hold_a_key_twice() -> None:
    """As those of joined bundles do."""
    table = attribute_table([(0, "a", "lost"), (0, "b", "x"), (0, "c", "kept")])
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", "b", "a"]))
    table = table.set_column(1, "key", twice)
    assert maps(table) == [{"a": "kept", "b": "x"}, None, None]


def test_keys_need_no_dictionary() -> None:
    """There is none where keys are too many."""
    table = attribute_table([(0, "a", "1"), (2, "a", "2")])
    plain = table.set_column(1, "key", table.column("key").dictionary_decode())
    assert maps(plain) == maps(table) == [{"a": "1"}, None, {"a": "2"}]


def test_rows_in_any_order_find_their_parents() -> None:
    """Only Penstock's own tables are in the order of the parents."""
    pairs = [(2, "a", "1"), (0, "a", "2"), (2, "b", "3"), (0, "b", "4")]
    assert maps(attribute_table(pairs)) == [{"a": "2", "b": "4"}, None, {"a": "1", "b": "3"}]


def test_rows_without_a_parent_are_left_out() -> None:
    """Those of a resource without records, say."""
    pairs = [(0, "a", "1"), (3, "a", "2"), (9, "a", "3")]
    assert maps(attribute_table(pairs)) == [{"a": "1"}, None, None]
    ids = pa.array([3, None, 4], pa.uint16())
    assert maps(attribute_table(pairs), ids) == [{"a": "2"}, None, None]


def test_rows_that_name_no_parent_are_left_out() -> None:
    """They are not those of a record without an id."""
    table = attribute_table([(0, "a", "1"), (3, "a", "2")])
    table = table.set_column(0, "parent_id", pa.array([None, 3], pa.uint16()))
    assert maps(table, pa.array([None, 3], pa.uint16())) == [None, {"a": "2"}]


def test_ids_need_not_count() -> None:
    """Other writers of OTAP number their records as they like, and those without children not."""
    bundle = span_bundle([7, None, 3], [(3, "a", "three"), (7, "a", "seven")])
    rows = rows_of(bundle, Signal.TRACES, ORIGIN)
    found = rows["attributes"].to_pylist()
    assert found == [[("a", "seven")], None, [("a", "three")]]


def test_a_slice_of_a_table_is_what_it_shows() -> None:
    """What is before and after it does not count."""
    pairs = [(0, "x", "before"), (0, "a", "1"), (1, "a", "2"), (1, "b", "3"), (2, "x", "after")]
    assert maps(attribute_table(pairs).slice(1, 3)) == [{"a": "1"}, {"a": "2", "b": "3"}, None]
    assert maps(attribute_table(pairs).slice(1, 0)) == [None, None, None]
    twice = attribute_table([(0, "x", "before"), (0, "a", "lost"), (0, "a", "kept")])
    assert maps(twice.slice(1)) == [{"a": "kept"}, None, None]


def test_parents_may_have_a_dictionary() -> None:
    """OTAP allows one for the ids of events and data points."""
    table = attribute_table([(0, "a", "1"), (2, "a", "2")], pa.uint32())
    encoded = table.set_column(0, "parent_id", table.column("parent_id").dictionary_encode())
    assert maps(encoded) == [{"a": "1"}, None, {"a": "2"}]


def test_a_record_without_attributes_has_no_maps() -> None:
    """Null, and not an empty map."""
    row = row_of(Signal.TRACES, span_request())
    assert (row["attributes"], row["attribute_types"]) == (None, None)


def test_service_name_is_that_of_the_resource() -> None:
    """Null where it does not say."""
    named, unnamed = span_request(2, service_name="cart"), span_request(1, host_name="a")
    rows = rows_of(bundle_of(Signal.TRACES, named, unnamed), Signal.TRACES, ORIGIN)
    assert rows["service_name"].to_pylist() == ["cart", "cart", None]


def test_attributes_of_resources_without_spans_disturb_nobody() -> None:
    """Their ids are in the tables of attributes all the same."""
    empty: Any = span_request(0, service_name="idle")
    busy: Any = span_request(2, service_name="busy")
    request = Signal.TRACES.request_class()
    for each in (empty, busy, empty):
        request.MergeFrom(each)
    check(Signal.TRACES, bundle_of(Signal.TRACES, request), [request])


def test_wider_types_of_strings_are_taken() -> None:
    """A segment widens columns where its bundles differ."""
    bundle = span_bundle([0], [(0, "a", "1")])
    table = bundle[slots.SPAN_ATTRS]
    wide = table.set_column(3, "str", table.column("str").cast(pa.large_string()))
    wide = wide.set_column(
        1, "key", table.column("key").dictionary_decode().cast(pa.large_string())
    )
    found = rows_of(Bundle({**bundle.slots, slots.SPAN_ATTRS: wide}), Signal.TRACES, ORIGIN)
    assert found["attributes"].to_pylist() == [[("a", "1")]]
