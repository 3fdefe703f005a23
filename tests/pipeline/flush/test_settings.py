"""Settings that cannot work are refused."""

from __future__ import annotations

import pytest

from penstock.model.errors import InvalidSetting
from penstock.pipeline.flush.settings import FlushSettings


@pytest.mark.parametrize("name", ["flush_max_bytes", "batch_bytes", "check_interval_s"])
def test_sizes_and_intervals_are_over_zero(name: str) -> None:
    """A batch of nothing never ends."""
    with pytest.raises(InvalidSetting, match=f"{name} must be over 0"):
        FlushSettings(**{name: 0})


@pytest.mark.parametrize("name", ["flush_max_age_s", "repeat_window_s", "repeat_rows"])
def test_ages_and_windows_may_be_zero(name: str) -> None:
    """That is: at once, and not at all. Less than nothing is refused."""
    FlushSettings(**{name: 0})
    with pytest.raises(InvalidSetting, match=f"{name} must not be negative"):
        FlushSettings(**{name: -1})
