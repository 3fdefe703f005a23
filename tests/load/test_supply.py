"""The requests of a process are in a fixed order, all different, and as many as planned."""

from __future__ import annotations

import itertools

import pytest

from penstock.load.supply import SPANS_A_COLLECTION
from penstock.otel.signals import Signal
from tests.load.helpers import NOW_NS, records, supply
from tests.simulation.manual_pool import ManualClock

TRACES, LOGS, METRICS = Signal.TRACES, Signal.LOGS, Signal.METRICS


def test_a_seed_decides_every_byte_but_the_times() -> None:
    """The same clock gives the same requests."""
    first, second, other = supply(), supply(), supply(seed=2)
    for number in range(5):
        assert list(first.requests(number)) == list(second.requests(number))
        assert list(first.requests(number)) != list(other.requests(number))


def test_no_two_requests_are_the_same() -> None:
    """A server that remembers requests stores each of them."""
    held = supply(signals=("traces",), batch=5)
    bodies = [request.data for number in range(1000) for request in held.requests(number)]
    assert len(set(bodies)) == len(bodies) == 1000


def test_spans_have_ids_of_their_own_in_all_requests_of_all_processes() -> None:
    """Though the same traces come again."""
    ids = [
        (span.trace_id, span.span_id)
        for process in range(2)
        for held in [supply(process, processes=2, batch=20, signals=("traces",))]
        for number in range(200)
        for request in held.requests(number)
        for _, span in records(TRACES, request.data)
    ]
    assert len(set(ids)) == len(ids) == 2 * 200 * 20


def test_every_request_of_every_process_has_an_ending_of_its_own() -> None:
    """The last bytes of its ids."""
    endings = [
        {span.span_id[-5:] for _, span in records(TRACES, request.data)}
        for process in range(3)
        for held in [supply(process, processes=3, batch=2, signals=("traces",))]
        for number in range(20)
        for request in held.requests(number)
    ]
    assert all(len(ending) == 1 for ending in endings)
    assert len(set().union(*endings)) == 3 * 20


def test_data_points_have_a_time_of_their_own() -> None:
    """Two collections of one instrument never say the same time."""
    clock = ManualClock(NOW_NS / 1e9)
    held = supply(clock=clock, batch=1000, signals=("metrics",))
    times = []
    for number in (0, 8):
        [request] = held.requests(number)
        metrics = [metric for _, metric in records(METRICS, request.data)]
        times += {point.time_unix_nano for each in metrics for point in each.gauge.data_points}
        clock.advance(0.01)
    assert times == [NOW_NS, NOW_NS + 10_000_000]


@pytest.mark.parametrize(("spans", "sizes"), [(100, [50, 50]), (120, [50, 50, 20]), (7, [7])])
def test_a_count_of_spans_is_kept_exactly(spans: int, sizes: list[int]) -> None:
    """The last request has what is left."""
    held = supply(spans=spans, seconds=None, signals=("traces",))
    assert held.units == len(sizes)
    found = [request for number in range(len(sizes)) for request in held.requests(number)]
    assert [request.records for request in found] == sizes
    assert [len(list(records(TRACES, request.data))) for request in found] == sizes


def test_processes_share_a_count() -> None:
    """None sends more than one span more than another."""
    shares = [supply(p, spans=10, seconds=None, processes=4, batch=100) for p in range(4)]
    assert [held.units for held in shares] == [1, 1, 1, 1]
    sent = [next(iter(held.requests(0))).records for held in shares]
    assert sent == [3, 3, 2, 2]


def test_without_a_count_there_is_no_end() -> None:
    """Units come round, each time with other ids."""
    held = supply(signals=("traces",))
    assert held.units is None
    assert list(held.requests(3)) != list(held.requests(3 + 10**6))


@pytest.mark.parametrize("signal", Signal)
def test_only_the_signals_asked_for_are_sent(signal: Signal) -> None:
    """Alone or together."""
    held = supply(signals=(signal.value,))
    found = [request for number in range(40) for request in held.requests(number)]
    assert {request.signal for request in found} == {signal}


def test_metrics_are_collected_once_for_a_thousand_spans() -> None:
    """However they are divided into requests."""
    held = supply(batch=100, signals=("traces", "metrics"))
    sent = [request for number in range(40) for request in held.requests(number)]
    spans = sum(request.records for request in sent if request.signal is TRACES)
    collections = sum(request.signal is METRICS for request in sent)
    assert spans == collections * SPANS_A_COLLECTION


def test_spans_that_logged_nothing_send_no_logs() -> None:
    """An empty request would be of no use."""
    held = supply(batch=1, signals=("logs",))
    found = list(itertools.chain.from_iterable(map(held.requests, range(200))))
    assert 0 < len(found) < 200
    assert all(request.records for request in found)


def test_requests_have_the_time_at_which_they_are_made() -> None:
    """Spans end within the second before it, when they were renewed just now."""
    clock = ManualClock(NOW_NS / 1e9)
    held = supply(clock=clock)
    clock.advance(3600)
    request = next(iter(held.requests(0)))
    ends = [span.end_time_unix_nano for _, span in records(TRACES, request.data)]
    assert NOW_NS + 3598 * 10**9 < max(ends) <= NOW_NS + 3600 * 10**9


def test_instances_of_processes_differ() -> None:
    """Two processes are two instances of each service."""
    first, second = (next(iter(supply(p, processes=2).requests(0))) for p in range(2))
    assert first.data != second.data
    assert supply(0)._resources != supply(1)._resources
