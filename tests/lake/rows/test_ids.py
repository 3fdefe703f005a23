"""Ids are lower-case hex, of whatever length they were."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.lake.rows.ids import hex_ids
from penstock.otel import Signal
from tests.lake.rows.comparable import row_of
from tests.lake.rows.samples import only_span, span_request


def hexed(ids: pa.Array) -> list[str | None]:
    """The ids of a column."""
    found = hex_ids(pa.record_batch({"trace_id": ids}), 0, "trace_id", None)
    found.validate(full=True)
    texts: list[str | None] = found.to_pylist()
    return texts


IDS = pa.array([b"\xab" * 8, None, b"\0" * 7 + b"\x01"], pa.binary(8))
TEXTS = ["ab" * 8, None, "0" * 15 + "1"]


def test_ids_are_lower_case_hex() -> None:
    """Null where there is none."""
    assert hexed(IDS) == TEXTS


def test_a_slice_of_ids_is_what_it_shows() -> None:
    """With its own nulls."""
    assert hexed(IDS.slice(1)) == TEXTS[1:]
    assert hexed(IDS.slice(2, 1)) == TEXTS[2:]
    assert hexed(IDS.slice(0, 0)) == []


def test_ids_may_have_a_dictionary_or_no_width() -> None:
    """As OTAP allows, or a segment makes them where its bundles differ."""
    assert hexed(IDS.dictionary_encode()) == TEXTS
    assert hexed(IDS.cast(pa.binary())) == TEXTS


@pytest.mark.parametrize("odd", [b"", b"\0", b"short", b"far too long to be an id"])
def test_ids_of_an_odd_length_are_kept(odd: bytes) -> None:
    """Whole; an empty one is null."""
    request = span_request()
    only_span(request).parent_span_id = odd
    link = only_span(request).links.add(trace_id=odd, span_id=odd)
    row = row_of(Signal.TRACES, request)
    assert row["parent_span_id"] == (odd.hex() or None)
    assert row["links"][0]["trace_id"] == (link.trace_id.hex() or None)
