"""How large vocabularies have grown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.segment.gauge import DictionaryGauge, StreamGauge

if TYPE_CHECKING:
    import pytest


def words(first: int, count: int) -> pa.Array:
    """`count` different words."""
    return pa.array([f"word {number}" for number in range(first, first + count)])


def test_repeated_values_count_once() -> None:
    """However often the same dictionary comes, it fits."""
    gauge = DictionaryGauge(10)
    for _ in range(100):
        assert gauge.fits(words(0, 9))
        gauge.add(words(0, 9))
        assert not gauge.is_at_limit()


def test_new_values_fit_up_to_the_limit() -> None:
    """Not beyond."""
    gauge = DictionaryGauge(10)
    gauge.add(words(0, 6))
    gauge.add(words(3, 6))
    assert gauge.fits(words(0, 10))
    assert not gauge.fits(words(0, 11))
    gauge.add(words(9, 1))
    assert gauge.is_at_limit()


def test_nulls_and_duplicates_do_not_count() -> None:
    """They are no values of the vocabulary."""
    gauge = DictionaryGauge(2)
    gauge.add(pa.array(["a", "a"]))
    assert gauge.fits(pa.array([None, "b"]))
    assert not gauge.fits(pa.array(["b", "c"]))


def test_a_dictionary_over_the_limit_by_itself_ends_the_counting() -> None:
    """The column becomes plain, so that nothing is gained by sealing early."""
    gauge = DictionaryGauge(2)
    gauge.add(words(0, 3))
    assert gauge.fits(words(0, 100))
    gauge.add(words(0, 1))
    assert not gauge.is_at_limit()


def test_values_that_cannot_be_compared_do_not_count() -> None:
    """No vocabulary can be made of them."""
    gauge = DictionaryGauge(2)
    structs = pa.array([{"x": 1}, {"x": 2}])
    gauge.add(structs)
    assert gauge.fits(structs)
    gauge.add(structs)
    assert not gauge.is_at_limit()


def test_values_are_counted_only_when_there_may_be_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lengths alone answer as long as their sum is under the limit."""
    counted = []
    count = DictionaryGauge._union
    monkeypatch.setattr(
        DictionaryGauge, "_union", lambda self, new: counted.append(new) or count(self, new)
    )
    gauge = DictionaryGauge(1000)
    for _ in range(300):
        assert gauge.fits(words(0, 10))
        gauge.add(words(0, 10))
        gauge.is_at_limit()
    assert len(counted) < 10


def test_every_dictionary_of_a_stream_has_its_gauge() -> None:
    """Nested ones included."""
    kind = pa.list_(pa.dictionary(pa.int8(), pa.string()))
    batch = pa.record_batch({"p": pa.array([1]), "d": pa.array([["a", "b", "c"]], kind)})
    gauge = StreamGauge(batch.schema, 3)
    assert gauge.fits(batch)
    gauge.add(batch)
    assert gauge.is_at_limit()
    assert not gauge.fits(pa.record_batch({"p": pa.array([1]), "d": pa.array([["d"]], kind)}))
