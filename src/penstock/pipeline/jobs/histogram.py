"""Durations counted in buckets that grow by a constant factor: they can be added up.

The buckets are those of OpenTelemetry's exponential histogram of scale 5: bucket `i` counts
durations over 2^(i/32) ns and up to 2^((i+1)/32) ns. Bucket -2, of which there is none otherwise,
counts those of 0 and below.

A quantile is the middle of the bucket that the value is in, which is at most 1.1 % from it, and
2.2 % once it is rounded to a nanosecond (values under a microsecond). It is the value of rank
⌊q · (n - 1)⌋, of n from 0. Histograms are merged by adding the counts of equal buckets, and the
quantiles of the sum are as good.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

BUCKETS_PER_DOUBLING: Final = 32
ZERO_BUCKET: Final = -2


def merge(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The histogram of all that was counted in these."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(total)


def quantile(histogram: Mapping[int, int], q: float) -> int | None:
    """In nanoseconds; None where nothing was counted."""
    buckets = np.array(sorted(histogram), np.int64)
    counts = np.array([histogram[bucket] for bucket in sorted(histogram)], np.int64)
    values, is_null = quantiles(np.array([0, len(buckets)]), buckets, counts, q)
    return None if is_null[0] else int(values[0])


def quantiles(
    offsets: NDArray[np.integer],
    buckets: NDArray[np.integer],
    counts: NDArray[np.int64],
    q: float,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Of many histograms, and which of them are empty.

    Histogram `i` is `buckets[offsets[i]:offsets[i + 1]]`, rising, with their counts over 0.
    """
    ends = np.concatenate([[0], np.cumsum(counts)])
    before, totals = ends[offsets[:-1]], ends[offsets[1:]] - ends[offsets[:-1]]
    is_empty = totals == 0
    ranks = before + np.floor(q * np.maximum(totals - 1, 0)).astype(np.int64)
    places = np.searchsorted(ends[1:], ranks, side="right")
    padded = np.append(buckets, ZERO_BUCKET)  # for empty histograms at the end
    return _middles(padded[places]), is_empty


def _middles(buckets: NDArray[np.integer]) -> NDArray[np.int64]:
    """The value that is in proportion as far from both ends of the bucket."""
    low = np.exp2(np.maximum(buckets, -1) / BUCKETS_PER_DOUBLING)
    growth = 2 ** (1 / BUCKETS_PER_DOUBLING)
    middle = np.rint(low * 2 * growth / (1 + growth))
    largest = np.float64(2**63 - 1024)  # of the doubles that are below 2^63
    found = np.minimum(middle, largest).astype(np.int64)
    return np.where(buckets <= ZERO_BUCKET, 0, found)
