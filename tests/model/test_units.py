"""Sizes and durations as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidSetting
from penstock.model.units import parse_duration, parse_size, show_duration, show_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        (17, 17),
        ("17", 17),
        ("32MB", 32_000_000),
        ("32 mb", 32_000_000),
        ("4GiB", 4 * 2**30),
        ("1.5k", 1500),
        (" 2TiB ", 2 * 2**40),
        ("500GB", 500 * 10**9),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_size_is_read_as_written(text: object, size: int) -> None:
    """`MB` is a million bytes, `MiB` is 2^20, and a bare number is exact."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "MB", "-1", -1, "1e3", "5 parsecs", "1 2MB", None, True, 1.5, [], "٣MB", "9" * 400]
)
def test_what_is_no_size_is_refused(text: object) -> None:
    """The error repeats what was written, and says how to write it."""
    with pytest.raises(InvalidSetting, match="is no size; write it like"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (0, 0.0),
        ("3", 3.0),
        (2.5, 2.5),
        ("25ms", 0.025),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("2 d", 172_800.0),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("500ns", 5e-7),
    ],
)
def test_duration_is_read_as_written(text: object, seconds: float) -> None:
    """Units add up, and a bare number is seconds."""
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "ms", "-1s", -1, "1 fortnight", "5s later", None, True, [], math.inf, math.nan]
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    """The error repeats what was written, and says how to write it."""
    with pytest.raises(InvalidSetting, match="is no duration; write it like"):
        parse_duration(text)


@given(st.integers(0, 2**63))
def test_size_survives_being_shown(size: int) -> None:
    """What is shown means the same number of bytes."""
    assert parse_size(show_size(size)) == size


@given(st.integers(0, 10**18))
def test_duration_survives_being_shown(nanoseconds: int) -> None:
    """What is shown means the same time, to a nanosecond or to what a float holds."""
    seconds = nanoseconds / 1e9
    assert parse_duration(show_duration(seconds)) == pytest.approx(seconds, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (32 * 2**20, "32MiB"), (5 * 10**9, "5GB"), (1234, "1234")]
)
def test_size_is_shown_as_short_as_it_is_exact(size: int, text: str) -> None:
    """The largest unit of which it is a multiple."""
    assert show_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.025, "25ms"), (5.0, "5s"), (5400.0, "90m"), (86400.0, "1d")]
)
def test_duration_is_shown_as_short_as_it_is_exact(seconds: float, text: str) -> None:
    """The largest unit of which it is a multiple."""
    assert show_duration(seconds) == text
