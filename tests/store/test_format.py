"""The events of ack.log as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import Damaged
from penstock.segment import SegmentInfo
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
    decode_event,
    encode_event,
)
from tests.store.helpers import UNHURRIED

if TYPE_CHECKING:
    from penstock.store.format import Event

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
json = st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.integers()))
events = st.one_of(
    st.builds(Answered, st.sampled_from(Outcome), u32, u64, u32, u32, i64),
    st.builds(Sealed, st.builds(SegmentInfo, *[u64] * 6, *[i64] * 3)),
    st.builds(Removed, st.sampled_from(Reason), u64, u64),
    st.builds(Registered, u32, u64, st.text()),
    st.builds(Unregistered, u32),
    st.builds(Activated, u32, st.booleans()),
    st.builds(Snapshot, json),
)


@UNHURRIED
@given(events)
def test_every_event_reads_back_as_it_was(event: Event) -> None:
    """Encoding loses nothing."""
    assert decode_event(encode_event(event)) == event


@UNHURRIED
@given(st.binary(max_size=100))
def test_any_other_bytes_are_damage(data: bytes) -> None:
    """No message makes anything but an event or Damaged."""
    try:
        event = decode_event(data)
    except Damaged:
        return
    assert isinstance(event, Snapshot) or decode_event(encode_event(event)) == event


@UNHURRIED
@given(events.filter(lambda event: not isinstance(event, Snapshot | Registered)))
def test_an_event_of_the_wrong_length_is_damage(event: Event) -> None:
    """Fixed fields are fixed: neither a byte more nor one less is taken."""
    data = encode_event(event)
    for wrong in (data + b"\0", data[:-1]):
        with pytest.raises(Damaged):
            decode_event(wrong)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x08",
        b"\x01{",
        b"\x01\xff",
        b"\x01" + b"[" * 100_000,
        b"\x03\x09" + bytes(16),
        b"\x04" + bytes(12) + b"\xff",
        b"\x07\x06" + bytes(28),
    ],
)
def test_what_no_version_writes_is_damage(data: bytes) -> None:
    """Unknown kinds, reasons and outcomes, text that is none, JSON that is none."""
    with pytest.raises(Damaged):
        decode_event(data)


def test_the_bytes_are_those_of_the_document() -> None:
    """One event of each kind, as the module's grammar says; a change breaks old files."""
    of_segment = SegmentInfo(1, 2, 3, 4, 5, 6, 7, 8, 9)
    pinned: list[tuple[Event, str]] = [
        (Answered(Outcome.DROPPED, 1, 2, 3, 4, -1), "07 04 01000000 0200000000000000 03000000"
         " 04000000 ffffffffffffffff"),
        (Sealed(of_segment), "02" + "".join(f" {n:02x}00000000000000" for n in range(1, 10))),
        (Removed(Reason.SIZE, 1, 2), "03 03 0100000000000000 0200000000000000"),
        (Registered(1, 2, "ä"), "04 01000000 0200000000000000 c3a4"),
        (Unregistered(1), "05 01000000"),
        (Activated(1, True), "06 01000000 01"),
        (Snapshot({"a": 1}), "01 7b2261223a317d"),
    ]  # fmt: skip
    for event, text in pinned:
        assert encode_event(event) == bytes.fromhex(text)
