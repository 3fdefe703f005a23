"""A bundle holds up to 64 slots, and never one that a segment could not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.model.bundle import MAX_SLOTS, Bundle
from penstock.model.errors import InvalidBundle


def batch(rows: int = 2, name: str = "id") -> pa.RecordBatch:
    """A batch with one column."""
    return pa.record_batch({name: pa.array(range(rows), pa.int64())})


def test_bundle_is_a_mapping_of_slots_in_order() -> None:
    """However they were given."""
    bundle = Bundle({40: batch(3), 1: batch(1)})
    assert (list(bundle), len(bundle), list(bundle.slots)) == ([1, 40], 2, [1, 40])
    assert (bundle[40].num_rows, bundle.get(1).num_rows, bundle.get(2)) == (3, 1, None)
    assert 40 in bundle
    assert 2 not in bundle
    with pytest.raises(KeyError):
        bundle[2]


def test_bundle_does_not_change_with_what_it_was_made_of() -> None:
    """It keeps a dictionary of its own."""
    slots = {0: batch()}
    bundle = Bundle(slots)
    slots[1] = batch()
    assert list(bundle) == [0]


def test_bundle_may_be_empty_and_its_batches_too() -> None:
    """An absent slot and one without rows are different."""
    assert len(Bundle({})) == 0
    assert 5 in Bundle({5: batch(0)})
    assert Bundle({}) != Bundle({5: batch(0)})


def test_all_64_slots_can_be_used() -> None:
    """0 to 63."""
    assert len(Bundle({slot: batch() for slot in range(MAX_SLOTS)})) == 64


@pytest.mark.parametrize("slot", [-1, 64, 1.0, True, "SPANS", None])
def test_slot_out_of_range_is_refused(slot: object) -> None:
    """And named in the error."""
    with pytest.raises(InvalidBundle, match=repr(slot)):
        Bundle({slot: batch()})


@pytest.mark.parametrize("content", [None, b"bytes", pa.table({"id": [1]}), [1, 2]])
def test_slot_holds_a_record_batch_and_nothing_else(content: object) -> None:
    """A table has several batches, and a bundle one a slot."""
    with pytest.raises(InvalidBundle, match="RecordBatch"):
        Bundle({0: content})


def test_two_columns_of_one_name_are_refused() -> None:
    """No schema that unites batches could tell them apart."""
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(InvalidBundle, match="same name"):
        Bundle({0: twice})


@pytest.mark.parametrize("items", [-1, 2**63, 1.5, True, "1"])
def test_count_of_items_is_a_number_that_can_be_stored(items: object) -> None:
    """None leaves the count to the slot table."""
    with pytest.raises(InvalidBundle, match="items"):
        Bundle({}, items=items)


def test_items_are_as_given() -> None:
    """From none at all to the largest number."""
    assert [Bundle({}, items=n).items for n in (None, 0, 2**63 - 1)] == [None, 0, 2**63 - 1]


def test_bundles_are_equal_by_their_batches() -> None:
    """`items` does not count, and a bundle is nothing else's equal."""
    assert Bundle({1: batch()}, items=1) == Bundle({1: batch()}, items=2)
    assert Bundle({1: batch()}) != Bundle({2: batch()})
    assert Bundle({1: batch(2)}) != Bundle({1: batch(3)})
    assert Bundle({1: batch()}) != {1: batch()}


def test_bundle_cannot_be_a_key() -> None:
    """Its equality reads data."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(Bundle({}))


def test_size_counts_the_rows_of_a_slice_alone() -> None:
    """Not what its buffers hold besides."""
    large = batch(10_000)
    assert Bundle({0: large}).nbytes == 80_000
    assert Bundle({0: large.slice(5, 2)}).nbytes == 16


def test_repr_says_slots_and_rows() -> None:
    """And no data."""
    assert repr(Bundle({40: batch(3), 1: batch(1)})) == "Bundle({1: 1 rows, 40: 3 rows})"
