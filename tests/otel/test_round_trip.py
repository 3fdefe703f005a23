"""Requests become bundles, and the same requests again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.slots import OTAP
from penstock.otel import Signal, decode_requests, encode_bundle
from tests.otel.samples import canonical, encoded, full_request
from tests.otel.strategies import requests

SIGNALS = pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)


def check_round_trip(signal: Signal, messages: list[bytes]) -> None:
    """Through one bundle and back."""
    [decoded] = decode_requests(signal, messages)
    assert decoded.bundle is not None, decoded.problem
    for batch in decoded.bundle.slots.values():
        batch.validate(full=True)
    OTAP.check(decoded.bundle)
    assert canonical(signal, encode_bundle(signal, decoded.bundle)) == canonical(signal, *messages)


@SIGNALS
@given(st.data())
@settings(max_examples=80, deadline=None)
def test_a_request_comes_back_equal(signal: Signal, data: st.DataObject) -> None:
    """Whatever the official classes can hold is in the bundle, and comes out again."""
    check_round_trip(signal, [encoded(data.draw(requests(signal)))])


@SIGNALS
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_requests_that_share_a_bundle_come_back_as_one(signal: Signal, data: st.DataObject) -> None:
    """Their resources follow each other, and none is merged with another."""
    several = data.draw(st.lists(requests(signal), min_size=2, max_size=4))
    check_round_trip(signal, [encoded(request) for request in several])


@SIGNALS
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_large_requests_come_back_equal(signal: Signal, share: float) -> None:
    """With many rows in every table."""
    for seed in range(15):
        check_round_trip(signal, [encoded(full_request(signal, seed, share=share))])


@SIGNALS
def test_many_requests_come_back_as_one(signal: Signal) -> None:
    """As a busy server decodes them."""
    many = [encoded(full_request(signal, seed, share=0.6)) for seed in range(40)]
    check_round_trip(signal, many)


@pytest.mark.soak
@SIGNALS
@given(st.data())
@settings(max_examples=1000, deadline=None)
def test_very_many_requests_come_back_equal(signal: Signal, data: st.DataObject) -> None:
    """The same for longer."""
    check_round_trip(signal, [encoded(data.draw(requests(signal)))])


@SIGNALS
def test_a_request_without_anything_comes_back(signal: Signal) -> None:
    """It is valid, and has a bundle with an empty table of records."""
    check_round_trip(signal, [b""])


@SIGNALS
def test_equal_resources_stay_apart(signal: Signal) -> None:
    """Two that a client sent apart are not one, even if nothing tells them from each other."""
    request = full_request(signal, 1)
    check_round_trip(signal, [encoded(request)] * 3)


@SIGNALS
def test_resources_and_scopes_without_records_keep_their_places(signal: Signal) -> None:
    """Before, between and after those that have some."""
    outer, inner, records = signal.field_names
    request: Any = full_request(signal, 2)
    resources = getattr(request, outer)
    for _ in range(4):
        resources.add().CopyFrom(resources[0])
    for number in (0, 3, 4):
        for scope in getattr(resources[number], inner):
            scope.ClearField(records)
    getattr(resources[3], inner).add()
    resources[1].ClearField(inner)
    getattr(resources[2], inner).add().schema_url = "nothing here"
    resources.add()
    check_round_trip(signal, [encoded(request)])
    check_round_trip(signal, [encoded(request), b"", encoded(request)])


@pytest.mark.parametrize("field", ["trace_id", "span_id", "parent_span_id"])
@pytest.mark.parametrize("odd", [b"", b"\0", b"short", b"far too long to be an id", bytes(8)])
def test_ids_of_any_length_come_back(field: str, odd: bytes) -> None:
    """Columns of ids have one width; what does not fit is kept beside them."""
    request: Any = full_request(Signal.TRACES, 3)
    spans = request.resource_spans[0].scope_spans[0].spans
    setattr(spans[-1], field, odd)
    if field != "parent_span_id":
        setattr(spans[0].links[0], field, odd)
    check_round_trip(Signal.TRACES, [encoded(request)])
