"""Messages between a process and its child."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.children.frames import (
    COUNT,
    MOST_PARTS,
    FrameTooLarge,
    lengths_of,
    read_message,
    write_message,
)


@given(st.lists(st.lists(st.binary(max_size=50), max_size=5), max_size=5))
def test_messages_come_out_as_they_went_in(messages: list[list[bytes]]) -> None:
    """One after the other, empty ones too, and then there are no more."""
    file = io.BytesIO()
    for message in messages:
        write_message(file, message)
    file.seek(0)
    assert [read_message(file) for _ in messages] == messages
    assert read_message(file) is None


def test_large_part_is_not_copied_with_the_others() -> None:
    """It is the same on the wire."""
    parts = [b"a", b"b" * 3_000_000, b"c"]
    file = io.BytesIO()
    write_message(file, parts)
    file.seek(0)
    assert read_message(file) == parts


def test_message_that_is_cut_is_none() -> None:
    """Whoever wrote it died over it."""
    file = io.BytesIO()
    write_message(file, [b"a", b"bc"])
    for size in range(len(file.getvalue())):
        assert read_message(io.BytesIO(file.getvalue()[:size])) is None


def test_nobody_makes_room_for_too_much() -> None:
    """What is announced is bounded before it is read."""
    with pytest.raises(FrameTooLarge):
        read_message(io.BytesIO(COUNT.pack(MOST_PARTS + 1)))
    with pytest.raises(FrameTooLarge, match="300 bytes, where 299"):
        lengths_of(b"\x96" + bytes(7) + b"\x96" + bytes(7), 299)
