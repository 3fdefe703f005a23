"""Messages of the log become bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.bundle import Bundle
from penstock.model.slots import MAX_ROOT_RECORDS, RAW_LOGS, RAW_TRACES
from penstock.store import decoding
from penstock.store.decoding import Decoded, PlainDecoder
from penstock.store.messages import encode_bundle, encode_raw
from tests.store.helpers import UNHURRIED, bundle, number_of

if TYPE_CHECKING:
    import pytest


def decode(messages: list[bytes], first_offset: int = 0) -> list[Decoded]:
    """What the plain decoder makes of them."""
    return list(PlainDecoder().decode(first_offset, messages))


def raw(decoded: Decoded) -> list[bytes]:
    """The messages in a bundle of raw bytes."""
    assert decoded.bundle is not None
    return decoded.bundle[RAW_LOGS]["data"].to_pylist()


def test_raw_messages_share_a_bundle() -> None:
    """One row each, as they were sent, and each counts as an item."""
    sent = [b"one", b"\0two", b""]
    (decoded,) = decode([encode_raw(data) for data in sent], 7)
    assert (decoded.first_offset, decoded.messages) == (7, 3)
    assert raw(decoded) == sent
    assert decoded.bundle is not None
    assert decoded.bundle.items == 3


def test_raw_messages_can_go_into_another_slot() -> None:
    """A topic of traces has its own."""
    (decoded,) = PlainDecoder(RAW_TRACES).decode(0, [b"span"])
    assert decoded.bundle is not None
    assert list(decoded.bundle) == [RAW_TRACES]


def test_bundles_stay_single_and_in_order() -> None:
    """Between raw messages too; offsets follow one another."""
    messages = [b"a", encode_bundle(bundle(1)), encode_bundle(bundle(2)), b"b", b"c"]
    found = decode(messages, 10)
    assert [(d.first_offset, d.messages) for d in found] == [(10, 1), (11, 1), (12, 1), (13, 2)]
    middle = [d.bundle for d in found[1:3]]
    assert [number_of(b) for b in middle if b is not None] == [1, 2]


def test_a_message_that_is_no_bundle_is_left_to_be_set_aside() -> None:
    """Its neighbours are decoded all the same."""
    found = decode([encode_bundle(bundle(1)), b"\0Bnonsense", b"\0?", encode_bundle(bundle(2))])
    assert [d.bundle is not None for d in found] == [True, False, False, True]
    assert [d.first_offset for d in found] == [0, 1, 2, 3]
    assert all(d.problem for d in found[1:3])


def test_a_bundle_of_raw_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes, and by the number of records that OTAP can count."""
    monkeypatch.setattr(decoding, "RAW_BUNDLE_BYTES", 100)
    assert [d.messages for d in decode([b"x" * 40] * 5)] == [2, 2, 1]
    assert [d.messages for d in decode([b"x" * 500, b"y", b"z" * 500])] == [1, 1, 1]
    assert [d.messages for d in decode([b""] * (MAX_ROOT_RECORDS + 1))] == [MAX_ROOT_RECORDS, 1]


@UNHURRIED
@given(st.lists(st.sampled_from([b"raw", b"\0Rraw", b"\0B", encode_bundle(Bundle({}))])))
def test_every_message_is_covered_once_and_in_order(messages: list[bytes]) -> None:
    """Nothing is left out, whatever follows what."""
    position = 5
    for decoded in decode(messages, 5):
        assert decoded.first_offset == position
        assert decoded.messages > 0
        position += decoded.messages
    assert position == 5 + len(messages)
