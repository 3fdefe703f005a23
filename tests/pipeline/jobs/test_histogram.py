"""Quantiles of counted durations are near those of the durations."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from penstock.pipeline.jobs.histogram import ZERO_BUCKET, merge, quantile, quantiles


def counted(durations: list[int]) -> dict[int, int]:
    """The histogram of durations, by the definition of its buckets."""
    return merge({_bucket(duration): 1} for duration in durations)


def _bucket(duration: int) -> int:
    return math.ceil(math.log2(duration) * 32) - 1 if duration > 0 else ZERO_BUCKET


@pytest.mark.parametrize("duration", [*range(1, 200), 999, 10**6, 10**9, 10**15, 2**63 - 1])
def test_single_duration_is_found_within_the_bound(duration: int) -> None:
    """However short: rounding to a nanosecond adds at most as much again."""
    assert quantile(counted([duration]), 0.5) == pytest.approx(duration, rel=0.022)


def test_long_durations_are_found_within_half_the_bound() -> None:
    """Rounding is nothing against a microsecond."""
    chance = random.Random(5)
    for _ in range(2000):
        duration = int(10 ** chance.uniform(3, 18))
        assert quantile(counted([duration]), 0.5) == pytest.approx(duration, rel=0.0115)


def test_nothing_and_less_are_nothing() -> None:
    """Clocks go back."""
    assert quantile(counted([0, -5, -(2**63)]), 1.0) == 0


def test_quantile_is_the_value_of_its_rank() -> None:
    """⌊q · (n - 1)⌋, from 0."""
    durations = [1000 * 2**n for n in range(11)]
    for q in (0.0, 0.05, 0.5, 0.51, 0.99, 1.0):
        wanted = durations[int(q * 10)]
        assert quantile(counted(durations), q) == pytest.approx(wanted, rel=0.022)


def test_merged_histogram_counts_all() -> None:
    """In any order."""
    first, second = counted([10, 20, 20]), counted([20, 5_000])
    assert merge([first, second]) == merge([second, first]) == counted([10, 20, 20, 20, 5_000])


def test_empty_histogram_has_no_quantile() -> None:
    """Nor do those beside it change."""
    assert quantile({}, 0.5) is None
    offsets, buckets = np.array([0, 0, 1, 1, 2, 2]), np.array([31, 63])
    values, is_empty = quantiles(offsets, buckets, np.array([3, 4]), 0.5)
    assert is_empty.tolist() == [True, False, True, False, True]
    assert [values[1], values[3]] == [2, 4]
