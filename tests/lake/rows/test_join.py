"""Bundles that are turned into rows together give the rows that each gives alone."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lake.rows import groups, row_batches, rows_of
from penstock.lake.rows.join import join
from penstock.lake.schemas import TABLES, table_of
from penstock.model import slots
from penstock.model.bundle import Bundle
from penstock.model.positions import Position
from penstock.otel import Signal
from tests.lake.rows.comparable import ORIGIN, comparable, through_segment
from tests.lake.rows.samples import attribute_table, span_bundle, span_request
from tests.otel.samples import bundle_of, full_request
from tests.otel.strategies import requests

SIGNALS = pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
TRACES = Signal.TRACES
Stored = list[tuple[Bundle, Position]]


def stored(bundles: Iterable[Bundle]) -> Stored:
    """Each bundle ten messages after the one before."""
    return [(bundle, ORIGIN.after(10 * number)) for number, bundle in enumerate(bundles)]


def check_same(signal: Signal, bundles: Stored) -> int:
    """Returns how many batches there are."""
    batches = list(row_batches(bundles, signal))
    schema = TABLES[table_of(signal)]
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(schema, check_metadata=True)
    alone = [rows_of(bundle, signal, origin) for bundle, origin in bundles]
    expected = comparable(pa.concat_tables(alone))
    found = comparable(pa.Table.from_batches(batches, schema))
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    if signal is not Signal.METRICS:
        assert repr(found) == repr(expected)
    return len(batches)


@SIGNALS
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_joined_bundles_give_the_same_rows(signal: Signal, data: st.DataObject) -> None:
    """Whatever columns each of them has."""
    several = data.draw(st.lists(requests(signal), min_size=2, max_size=5))
    bundles = [without_remainder(bundle_of(signal, request)) for request in several]
    assert join(bundles) is not None
    assert check_same(signal, stored(bundles)) <= (4 if signal is Signal.METRICS else 1)


@SIGNALS
def test_bundles_of_a_segment_are_joined(signal: Signal) -> None:
    """They have dictionaries in common; there is one batch, or one for each kind of metric."""
    pairs = [(full_request(signal, seed), full_request(signal, seed + 9)) for seed in range(9)]
    read = through_segment(without_remainder(bundle_of(signal, *pair)) for pair in pairs)
    bundles = [(each.bundle, ORIGIN.after(each.first_offset - 100)) for each in read]
    assert check_same(signal, bundles) == (4 if signal is Signal.METRICS else 1)


@SIGNALS
@given(st.data())
@settings(max_examples=10, deadline=None)
def test_bundles_with_a_remainder_stand_alone(signal: Signal, data: st.DataObject) -> None:
    """Those beside them may be joined."""
    several = data.draw(st.lists(requests(signal), min_size=4, max_size=6))
    check_same(signal, stored(bundle_of(signal, request) for request in several))


def without_remainder(bundle: Bundle) -> Bundle:
    """As most bundles are: ids of odd lengths and the like are gone."""
    return Bundle({slot: bundle[slot] for slot in bundle if slot != slots.REMAINDER})


def test_bundles_with_ids_of_their_own_are_not_joined() -> None:
    """They are turned into rows one by one, and nothing is mixed up."""
    odd = span_bundle([7, 3], [(3, "a", "three"), (7, "a", "seven")])
    plain = span_bundle([0, 1], [(1, "a", "one")])
    swapped = span_bundle([1, 0], [(0, "a", "zero"), (1, "a", "one")])
    assert join([odd, plain]) is None
    assert join([plain, swapped]) is None
    assert check_same(TRACES, stored([plain, odd, swapped])) == 3


def test_attributes_without_a_parent_are_not_given_to_another() -> None:
    """The next bundle has a record with the number that they name."""
    orphans = span_bundle([0], [(0, "a", "mine"), (1, "a", "nobody's")])
    other = span_bundle([0], [(0, "b", "x")])
    assert join([orphans, other]) is None
    assert check_same(TRACES, stored([orphans, other])) == 2


def test_container_ids_beyond_those_of_a_bundle_are_not_joined() -> None:
    """They would be those of another bundle."""
    far = {slots.RESOURCE_ATTRS: attribute_table([(65_536, "a", "x")], pa.uint32())}
    bundle = span_bundle([0], [(0, "a", "x")], far)
    assert join([bundle, bundle]) is None
    assert join([span_bundle([0], [(0, "a", "x")])] * 2) is not None


def test_partitions_and_topics_are_kept_apart() -> None:
    """Every row says where it came from."""
    bundle = span_bundle([0], [(0, "a", "x")])
    named = [("s", "/n/t", 0), ("s", "/n/t", 1), ("s", "/n/u", 1), ("r", "/n/u", 1)]
    places = [Position(source, topic, number, 5) for source, topic, number in named]
    batches = list(row_batches([(bundle, place) for place in places], TRACES))
    rows = [row for batch in batches for row in batch.to_pylist()]
    found = [(row["_source"], row["_topic"], row["_topic_partition"]) for row in rows]
    assert found == named


@pytest.mark.parametrize(
    ("name", "limit"), [("GROUP_RECORDS", 3), ("GROUP_BYTES", 1), ("GROUP_BUNDLES", 1)]
)
def test_groups_are_limited(name: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By records, by bytes and by bundles."""
    monkeypatch.setattr(groups, name, limit)
    bundles = [bundle_of(TRACES, span_request(2)) for _ in range(3)]
    assert check_same(TRACES, stored(bundles)) == 3


def test_bundles_without_records_have_no_rows() -> None:
    """Alone, or between others."""
    empty, some = Bundle({}), span_bundle([0], [(0, "a", "x")])
    assert list(row_batches(stored([empty, empty]), TRACES)) == []
    assert check_same(TRACES, stored([empty, some, empty, some])) == 1
