"""Bundles become the rows that a plain walk over the requests finds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lake.rows import rows_of
from penstock.model.bundle import Bundle
from penstock.model.positions import Position
from penstock.otel import Signal
from tests.lake.rows.comparable import ORIGIN, check, through_segment
from tests.otel.samples import bundle_of, full_request
from tests.otel.strategies import requests

SIGNALS = pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)


@SIGNALS
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_request_becomes_its_rows(signal: Signal, data: st.DataObject) -> None:
    """Whatever the official classes can hold."""
    request = data.draw(requests(signal))
    check(signal, bundle_of(signal, request), [request])


@SIGNALS
@given(st.data())
@settings(max_examples=20, deadline=None)
def test_every_row_knows_the_offset_of_its_message(signal: Signal, data: st.DataObject) -> None:
    """Where several messages share a bundle, and some of them are empty."""
    several = data.draw(st.lists(requests(signal), min_size=2, max_size=4))
    check(signal, bundle_of(signal, *several), several)


@SIGNALS
@given(st.data())
@settings(max_examples=12, deadline=None)
def test_a_sealed_segment_gives_the_same_rows(signal: Signal, data: st.DataObject) -> None:
    """Its bundles have unified dictionaries, and memory of the file."""
    several = data.draw(st.lists(requests(signal), min_size=4, max_size=4))
    pairs = [several[:2], several[2:]]
    for pair, stored in zip(
        pairs, through_segment(bundle_of(signal, *pair) for pair in pairs), strict=True
    ):
        origin = Position("here", "/acme/traces", 3, stored.first_offset)
        check(signal, stored.bundle, pair, origin)


@SIGNALS
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_large_requests_become_their_rows(signal: Signal, share: float) -> None:
    """With many rows in every table, and all limits of every number."""
    for seed in range(10):
        request = full_request(signal, seed, share=share)
        check(signal, bundle_of(signal, request), [request])


@pytest.mark.soak
@SIGNALS
@given(st.data())
@settings(max_examples=600, deadline=None)
def test_very_many_requests_become_their_rows(signal: Signal, data: st.DataObject) -> None:
    """The same for longer."""
    several: list[Any] = data.draw(st.lists(requests(signal), min_size=1, max_size=3))
    check(signal, bundle_of(signal, *several), several)


@SIGNALS
def test_an_empty_bundle_has_no_rows(signal: Signal) -> None:
    """Nor has that of an empty request."""
    for bundle in (Bundle({}), bundle_of(signal, signal.request_class())):
        check(signal, bundle, [])


@SIGNALS
def test_the_same_bundle_gives_the_same_rows(signal: Signal) -> None:
    """In the same order: what is written twice can be told to be equal."""
    bundle = bundle_of(signal, full_request(signal, 1))
    first, again = (rows_of(bundle, signal, ORIGIN) for _ in range(2))
    assert first.slice(0, 1).num_rows
    assert repr(first.to_pylist()) == repr(again.to_pylist())
