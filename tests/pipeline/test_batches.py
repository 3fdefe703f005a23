"""What a batch consists of."""

from __future__ import annotations

import pytest

from penstock.model.settings import KIB
from penstock.pipeline.batches import Admission, before, grouped, segments_between
from penstock.pipeline.offsets import ends_after
from tests.pipeline.listing import KEY, OTHER, Listing, at, damaged, segment, seqs

START = {KEY: at(3, 30)}
END = {KEY: at(6, 60)}


def test_batch_is_what_lies_between_two_positions() -> None:
    """The first inclusive, the last exclusive."""
    listing = Listing([segment(number) for number in range(9)])
    assert seqs(segments_between(listing, START, END)) == [3, 4, 5]


def test_segment_that_was_deleted_is_no_silent_gap() -> None:
    """In the middle of a batch it is named with its messages."""
    listing = Listing([segment(3), segment(5)])
    found = segments_between(listing, START, END)
    assert seqs(found) == [3, -4, 5]
    assert (found[1].first_offset, found[1].end_offset) == (40, 50)


@pytest.mark.parametrize(("left", "expected"), [([5], [-3, 5]), ([3], [3, -4]), ([], [-3])])
def test_deleted_ends_of_a_batch_are_noticed(left: list[int], expected: list[int]) -> None:
    """Also if nothing of it is left, or nothing of the partition."""
    listing = Listing([segment(number) for number in left])
    assert seqs(segments_between(listing, START, END)) == expected


def test_missing_number_without_missing_messages_is_no_loss() -> None:
    """A store that is not sure which numbers it gave leaves some out."""
    listing = Listing([segment(3), segment(5, 40, 60)])
    assert seqs(segments_between(listing, START, END)) == [3, 5]


def test_missing_messages_without_a_missing_number_are_no_loss() -> None:
    """The store set them aside, and said so."""
    listing = Listing([segment(3), segment(4, 47, 50), segment(5)])
    assert seqs(segments_between(listing, START, END)) == [3, 4, 5]


def test_damaged_segment_is_part_of_its_batch() -> None:
    """And is not taken for a loss of what comes after it."""
    listing = Listing([segment(3), damaged(4), segment(5)])
    end = ends_after(START, listing.segments)
    assert seqs(segments_between(listing, START, end)) == [3, 4, 5]


def test_new_partition_is_repeated_from_where_it_began() -> None:
    """Though segments have been deleted since its batch was planned."""
    listing = Listing([segment(2), segment(3)])
    end = ends_after({}, listing.segments)
    assert seqs(segments_between(listing, {}, end)) == [2, 3]
    assert seqs(segments_between(Listing([segment(3)]), {}, end)) == [-2, 3]


def test_partition_that_the_end_does_not_name_is_left_out() -> None:
    """It appeared after the batch was planned."""
    listing = Listing([segment(3), segment(0, key=OTHER)])
    assert seqs(segments_between(listing, START, {KEY: at(4, 40)})) == [3]
    assert before(listing.segments, {OTHER: at(1, 10)}) == [segment(0, key=OTHER)]


@pytest.mark.parametrize(
    ("admission", "expected"),
    [
        (Admission(), [0, 1, 2, 3]),
        (Admission(max_segments=3), [0, 1, 2]),
        (Admission(max_bytes=200), [0, 1]),
        (Admission(max_bytes=299), [0, 1]),
        (Admission(max_segments=3, max_bytes=200), [0, 1]),
        (Admission(max_segments=1, max_bytes=200), [0]),
        (Admission(max_bytes=1), [0]),
    ],
)
def test_batch_is_bounded(admission: Admission, expected: list[int]) -> None:
    """By segments and bytes; one segment comes in any case, or the stream would stand still."""
    assert seqs(admission.admit([segment(number) for number in range(4)])) == expected


def test_partitions_are_read_evenly() -> None:
    """In the order of sealing, but never against a partition's own order."""
    ours = [segment(0, sealed_at_ns=5), segment(1, sealed_at_ns=4), segment(2, sealed_at_ns=9)]
    others = [segment(7, key=OTHER, sealed_at_ns=6), segment(8, key=OTHER, sealed_at_ns=7)]
    assert seqs(Admission().admit([*ours, *others])) == [0, 1, 7, 8, 2]


def test_small_segments_share_a_task() -> None:
    """Up to a size; a large one has its own, and none is divided."""
    sizes = [1, 2, 9, 3, 8, 1, 1]
    listed = [segment(number, size=size * KIB) for number, size in enumerate(sizes)]
    assert [seqs(group) for group in grouped(listed, 8 * KIB)] == [[0, 1], [2], [3], [4], [5, 6]]
    assert grouped([], 8 * KIB) == []
