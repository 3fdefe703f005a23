"""What a store knows, changed by events alone."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.store.format import (
    Activated,
    Answered,
    Outcome,
    Reason,
    Registered,
    Removed,
    Sealed,
    Snapshot,
    Unregistered,
)
from penstock.store.state import StoreState, SubscriberState, all_of, runs
from tests.store.helpers import UNHURRIED, info

if TYPE_CHECKING:
    from penstock.segment import SegmentInfo

SETTLING = [outcome for outcome in Outcome if outcome is not Outcome.NACKED]


def state_with(*segments: SegmentInfo, subscribers: int = 1) -> StoreState:
    """A state with these segments and subscribers that want all of them."""
    state = StoreState()
    for number in range(subscribers):
        state.apply(Registered(number, 0, f"s{number}"))
    for each in segments:
        state.apply(Sealed(each))
    return state


def answer(
    state: StoreState,
    seq: int,
    bundle: int,
    outcome: Outcome = Outcome.ACKED,
    subscriber: int = 0,
    count: int = 1,
) -> int:
    """One answer, and what follows from it."""
    settled = state.apply(Answered(outcome, subscriber, seq, bundle, count, 0))
    state.advance()
    return settled


# --- the high-water mark and the gap set ---------------------------------------------------------


@UNHURRIED
@given(st.data())
def test_the_mark_and_the_gap_set_are_those_of_a_plain_set(data: st.DataObject) -> None:
    """Bits and floors say the same as a set of (segment, bundle)."""
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    start = data.draw(st.integers(0, len(sizes)))
    state = StoreState()
    state.apply(Registered(0, start, "s"))
    for seq, bundles in enumerate(sizes):
        state.apply(Sealed(info(seq, bundles)))
    state.advance()
    places = [(seq, i) for seq in range(len(sizes)) for i in range(sizes[seq])]
    settled = {place for place in places if place[0] < start}
    for place in data.draw(st.lists(st.sampled_from(places), max_size=30)):
        outcome = data.draw(st.sampled_from(SETTLING))
        assert answer(state, *place, outcome) == (place not in settled)
        settled.add(place)
        mark = next((place for place in places if place not in settled), (len(sizes), 0))
        subscriber = state.subscribers[0]
        assert subscriber.high_water_mark() == mark
        assert subscriber.gap_set_size() == len({place for place in settled if place > mark})
        assert all(subscriber.has(*place) == (place in settled) for place in places)


@UNHURRIED
@given(st.data())
def test_a_segment_is_complete_when_every_subscriber_has_every_bundle(data: st.DataObject) -> None:
    """Neither one subscriber nor one bundle may be missing."""
    segment = info(0, data.draw(st.integers(1, 4)))
    state = state_with(segment, subscribers=data.draw(st.integers(1, 3)))
    wanted = [(s, b) for s in state.subscribers for b in range(segment.bundles)]
    for subscriber, bundle in data.draw(st.permutations(wanted)):
        assert not state.is_complete(segment)
        answer(state, 0, bundle, data.draw(st.sampled_from(SETTLING)), subscriber)
    assert state.is_complete(segment)


def test_without_subscribers_no_segment_is_complete() -> None:
    """Nobody has had anything."""
    assert not state_with(info(0), subscribers=0).is_complete(info(0))


def test_the_mark_passes_a_removed_segment_but_no_unanswered_bundle() -> None:
    """What is gone cannot be answered, and must not hold the mark for ever."""
    state = state_with(info(0, 2), info(1), info(2, 2))
    answer(state, 2, 0)
    state.apply(Removed(Reason.SIZE, 0, 2))
    state.advance()
    assert state.subscribers[0].high_water_mark() == (1, 0)
    state.apply(Removed(Reason.SIZE, 1, 11))
    state.advance()
    assert state.subscribers[0].high_water_mark() == (2, 1)
    assert state.subscribers[0].gap_set_size() == 0


def test_a_mark_is_raised_only_on_request() -> None:
    """While events are replayed, a segment that is not listed may only have lost its event."""
    state = state_with(info(1))
    assert state.subscribers[0].high_water_mark() == (0, 0)
    state.advance()
    assert state.subscribers[0].high_water_mark() == (1, 0)


# --- answers -------------------------------------------------------------------------------------


def test_a_bundle_is_counted_by_its_first_outcome_alone() -> None:
    """Two holders may answer for one bundle."""
    state = state_with(info(0, 2))
    assert answer(state, 0, 0) == 1
    assert answer(state, 0, 0, Outcome.DROPPED) == 0
    assert answer(state, 0, 0, Outcome.NACKED) == 0
    counts = state.subscribers[0].counts
    assert {kind: n for kind, n in counts.items() if n} == {Outcome.ACKED: 1}


def test_a_nack_settles_nothing_and_is_forgotten_with_the_answer() -> None:
    """It only counts how often a bundle was refused."""
    state = state_with(info(0))
    for times in (1, 2):
        answer(state, 0, 0, Outcome.NACKED)
        assert state.subscribers[0].nacks == {(0, 0): times}
    assert not state.is_complete(info(0))
    answer(state, 0, 0)
    assert state.subscribers[0].nacks == {}
    assert state.subscribers[0].counts[Outcome.NACKED] == 2


def test_a_run_of_bundles_is_settled_at_once_and_not_beyond_its_segment() -> None:
    """A run that says too much settles what there is."""
    state = state_with(info(0, 3), info(1))
    assert answer(state, 0, 1, Outcome.DROPPED, count=7) == 2
    assert state.subscribers[0].missing(info(0, 3)) == 0b001


def test_a_stranger_s_answer_changes_nothing() -> None:
    """It may have been unregistered meanwhile."""
    state = state_with(info(0))
    before = state.document()
    assert answer(state, 0, 0, subscriber=9) == 0
    state.apply(Activated(9, True))
    assert state.document() == before


def test_subscribers_progress_apart() -> None:
    """What one has, the other still lacks."""
    state = state_with(info(0, 2), subscribers=2)
    answer(state, 0, 0, subscriber=1)
    assert [(s.number, bits) for s, bits in state.outstanding(info(0, 2))] == [(0, 0b11), (1, 0b10)]


@UNHURRIED
@given(st.integers(0, 2**70))
def test_runs_add_up_to_the_bits_they_came_from(bits: int) -> None:
    """Each run is as long as it can be, and none is left out."""
    found = list(runs(bits))
    assert sum(((1 << count) - 1) << first for first, count in found) == bits
    assert all(a + n < b for (a, n), (b, _) in itertools.pairwise(found))


def test_all_of_a_segment_is_one_bit_a_bundle() -> None:
    """An empty segment has none."""
    assert (all_of(info(0, 0)), all_of(info(0, 3))) == (0, 0b111)


# --- segments and numbers ------------------------------------------------------------------------


def test_numbers_and_offsets_never_go_back() -> None:
    """Also not when everything was removed."""
    state = state_with(info(7, 3))
    state.apply(Removed(Reason.ACKED, 7, 73))
    assert (state.segments, state.segment_bytes) == ({}, 0)
    assert (state.next_seq, state.sealed_offset) == (8, 73)


def test_a_removal_proves_a_segment_whose_sealing_was_lost() -> None:
    """Its number must not be used again, nor its messages be sealed again."""
    state = StoreState()
    state.apply(Removed(Reason.ACKED, 4, 50))
    assert (state.next_seq, state.sealed_offset) == (5, 50)


def test_segments_stay_in_order_when_an_older_one_is_found_again() -> None:
    """Delivery and removal go by that order."""
    state = state_with(info(2), info(5), info(3))
    assert list(state.segments) == [2, 3, 5]
    assert state.segment_bytes == 300
    assert state.next_seq == 6


@pytest.mark.parametrize(
    "event",
    [
        Sealed(info(3)),
        Removed(Reason.ACKED, 0, 5),
        Registered(5, 0, "new"),
        Unregistered(0),
        Activated(0, False),
        Answered(Outcome.ACKED, 0, 0, 1, 1, 0),
    ],
)
def test_an_event_may_be_applied_twice(event: Sealed) -> None:
    """Replay need not know which events a snapshot has seen."""
    state = state_with(info(0, 2), info(1))
    state.apply(event)
    once = state.document()
    state.apply(event)
    assert state.document() == once


def test_a_number_is_never_given_to_a_second_subscriber() -> None:
    """An old answer must not count for somebody else."""
    state = state_with(subscribers=2)
    state.apply(Unregistered(1))
    assert state.next_subscriber == 2


# --- as a document -------------------------------------------------------------------------------


def test_a_snapshot_holds_the_whole_state() -> None:
    """Through JSON and back, in another object."""
    state = state_with(info(0, 70), info(1), info(2, 3), subscribers=2)
    answer(state, 0, 69)
    answer(state, 2, 1, Outcome.NACKED)
    answer(state, 1, 0, Outcome.REJECTED, subscriber=1)
    state.apply(Activated(1, False))
    other = StoreState()
    other.apply(Snapshot(json.loads(json.dumps(state.document()))))
    assert other.document() == state.document()
    assert other.segments == state.segments
    assert other.segment_bytes == state.segment_bytes == 300
    assert other.subscribers == state.subscribers
    assert isinstance(other.subscribers[0], SubscriberState)


def test_a_snapshot_replaces_what_was_known_before() -> None:
    """What came before it does not matter."""
    state, other = state_with(info(0)), state_with(info(5), subscribers=3)
    other.apply(Snapshot(state.document()))
    assert other.document() == state.document()
