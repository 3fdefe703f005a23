"""Copies of a request differ in ids, times and counters, and in nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.load.stamps import (
    ID_MARK,
    KEEP_NS,
    WINDOW_NS,
    Stamp,
    marked_count,
    marked_time,
    nonce,
)
from penstock.otel.signals import Signal
from tests.load.helpers import NOW_NS, parsed

OTHER, NEW = b"abcde", b"vwxyz"


def encoded_span() -> bytes:
    """A request with one span whose start lies a millisecond after the window's."""
    request: Any = Signal.TRACES.request_class()
    request.resource_spans.add().scope_spans.add().spans.add(
        trace_id=bytes(11) + ID_MARK,
        span_id=b"123" + ID_MARK,
        parent_span_id=b"456" + ID_MARK,
        name="name",
        start_time_unix_nano=marked_time(10**6),
        end_time_unix_nano=marked_time(WINDOW_NS),
    )
    data: bytes = request.SerializeToString()
    return data


def the_span(data: bytes) -> Any:
    """The one span in a request."""
    return parsed(Signal.TRACES, data).resource_spans[0].scope_spans[0].spans[0]


def stamp(data: bytes, keep_ns: int = KEEP_NS) -> Stamp:
    """Of a request whose counters began now."""
    return Stamp(Signal.TRACES, data, 1, NOW_NS, keep_ns=keep_ns)


def test_copy_has_the_given_ids_and_the_times_of_now() -> None:
    """Every id ends with the nonce; times lie as far before now as they were marked."""
    span = the_span(stamp(encoded_span()).copy(NOW_NS, NEW))
    assert span.trace_id == bytes(11) + NEW
    assert (span.span_id, span.parent_span_id) == (b"123" + NEW, b"456" + NEW)
    assert span.start_time_unix_nano == NOW_NS - WINDOW_NS + 10**6
    assert span.end_time_unix_nano == NOW_NS


def test_copies_are_as_long_as_the_request_and_keep_everything_else() -> None:
    """Only what has a fixed width varies."""
    data = encoded_span()
    copy = stamp(data).copy(NOW_NS, NEW)
    assert len(copy) == len(data)
    assert the_span(copy).name == "name"
    assert ID_MARK not in copy


def test_times_are_kept_for_a_while_and_then_renewed() -> None:
    """Most copies change only their ids."""
    held = stamp(encoded_span())
    ends = []
    for later_ns in (0, KEEP_NS - 1, KEEP_NS):
        span = the_span(held.copy(NOW_NS + later_ns, NEW))
        ends.append(span.end_time_unix_nano - NOW_NS)
    assert ends == [0, 0, KEEP_NS]


def test_two_copies_at_one_time_differ_in_their_ids_alone() -> None:
    """The second one takes nothing from the first."""
    held = stamp(encoded_span())
    first, second = held.copy(NOW_NS, OTHER), held.copy(NOW_NS, NEW)
    assert first != second
    assert first.replace(OTHER, NEW) == second


def test_counters_grow_with_time() -> None:
    """At the rate that they were marked with, from 0."""
    request: Any = Signal.METRICS.request_class()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="bytes")
    metric.sum.data_points.add(as_int=marked_count(450_000))
    held = stamp(request.SerializeToString(), keep_ns=0)
    values = []
    for seconds in (0, 2, 3):
        copy = parsed(Signal.METRICS, held.copy(NOW_NS + seconds * 10**9, NEW))
        [point] = copy.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points
        values.append(point.as_int)
    assert values == [0, 900_000, 1_350_000]


@pytest.mark.parametrize("offset_ns", [-1, WINDOW_NS + 1])
def test_times_stay_in_the_window(offset_ns: int) -> None:
    """A time that would not fit into its half of the word is moved to the nearest that does."""
    assert marked_time(offset_ns) == marked_time(min(max(offset_ns, 0), WINDOW_NS))
    assert 0 <= marked_time(offset_ns) < 2**63


def test_nonces_differ() -> None:
    """For as many requests as anyone sends, from wherever they begin."""
    assert len({nonce(2**40 - 7, number) for number in range(5000)}) == 5000
