"""What the shop did is written as OTLP says, and fits together across the signals."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.load.calls import Kind
from penstock.load.services import SERVICES
from penstock.otel import check_request, decode_requests
from penstock.otel.signals import Signal
from tests.load.helpers import NOW_NS, attributes, parsed, records, supply

TRACES, LOGS, METRICS = Signal.TRACES, Signal.LOGS, Signal.METRICS


@pytest.fixture(scope="module")
def unit() -> dict[Signal, tuple[bytes, int]]:
    """The three requests of 2000 spans."""
    found = supply(batch=2000, spans=2000, seconds=None).requests(0)
    return {request.signal: (request.data, request.records) for request in found}


@pytest.mark.parametrize("signal", Signal)
def test_the_server_takes_all_of_it(signal: Signal, unit: dict[Signal, tuple[bytes, int]]) -> None:
    """Nothing is rejected, and the records are as many as were said."""
    data, count = unit[signal]
    checked = check_request(signal, data)
    assert (checked.records, checked.rejected) == (count, 0)
    [decoded] = decode_requests(signal, [data])
    assert decoded.problem == ""
    assert decoded.bundle is not None
    assert decoded.bundle.items == count


@pytest.mark.parametrize("signal", Signal)
def test_every_service_is_a_resource(signal: Signal, unit: dict[Signal, tuple[bytes, int]]) -> None:
    """Each once, with an instance of its own."""
    resources = getattr(parsed(signal, unit[signal][0]), signal.field_names[0])
    instances = [
        attributes(held.resource)["service.instance.id"].string_value for held in resources
    ]
    assert len(set(instances)) == len(instances) == len(SERVICES)


def test_spans_carry_events_and_links(unit: dict[Signal, tuple[bytes, int]]) -> None:
    """An exception where a failure began; a link from each consumer to its producer."""
    made = [span for _, span in records(TRACES, unit[TRACES][0])]
    by_id = {span.span_id: span for span in made}
    thrown = [span for span in made if span.events]
    consumers = [span for span in made if span.kind == Kind.CONSUMER]
    assert thrown
    assert consumers
    assert all(span.status.code == 2 for span in thrown)
    assert {event.name for span in thrown for event in span.events} == {"exception"}
    for span in consumers:
        [link] = span.links
        assert by_id[link.span_id].kind == Kind.PRODUCER
        assert (link.trace_id, link.span_id) == (span.trace_id, span.parent_span_id)


def test_attributes_have_every_type(unit: dict[Signal, tuple[bytes, int]]) -> None:
    """Text, numbers, truth, bytes, arrays and maps."""
    kinds = {
        value.WhichOneof("value")
        for _, span in records(TRACES, unit[TRACES][0])
        for value in attributes(span).values()
    }
    assert kinds == {
        f"{kind}_value" for kind in ("string", "int", "double", "bool", "bytes", "array", "kvlist")
    }


def test_logs_belong_to_spans(unit: dict[Signal, tuple[bytes, int]]) -> None:
    """Each to one of the same request and service; errors to failed ones."""
    made = {
        (span.trace_id, span.span_id): (service, span)
        for service, span in records(TRACES, unit[TRACES][0])
    }
    severities = set()
    for service, record in records(LOGS, unit[LOGS][0]):
        owner, span = made[record.trace_id, record.span_id]
        assert owner == service
        assert record.time_unix_nano == span.end_time_unix_nano
        assert (record.severity_text == "ERROR") <= (span.status.code == 2)
        severities.add(record.severity_text)
    assert severities >= {"INFO", "ERROR"}


def test_metrics_are_of_every_kind(unit: dict[Signal, tuple[bytes, int]]) -> None:
    """Gauges, sums, both kinds of histogram, and summaries."""
    kinds = {metric.WhichOneof("data") for _, metric in records(METRICS, unit[METRICS][0])}
    assert kinds == {"gauge", "sum", "histogram", "exponential_histogram", "summary"}


def histogram_points(kind: str, data: bytes) -> list[Any]:
    """The data points of all histograms of a kind."""
    held = [metric for _, metric in records(METRICS, data) if metric.WhichOneof("data") == kind]
    return [point for metric in held for point in getattr(metric, kind).data_points]


def test_histograms_hold_together(unit: dict[Signal, tuple[bytes, int]]) -> None:
    """Buckets add up to the count; an exemplar is a span of the request."""
    data = unit[METRICS][0]
    made = {span.span_id for _, span in records(TRACES, unit[TRACES][0])}
    for point in histogram_points("histogram", data):
        assert sum(point.bucket_counts) == point.count
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert point.min <= point.sum / point.count <= point.max
        assert {exemplar.span_id for exemplar in point.exemplars} <= made
        assert point.exemplars


def test_exponential_buckets_hold_the_values(unit: dict[Signal, tuple[bytes, int]]) -> None:
    """The least and the greatest value lie in the first and the last bucket."""
    for point in histogram_points("exponential_histogram", unit[METRICS][0]):
        base = 2.0 ** (2.0**-point.scale)
        first, buckets = point.positive.offset, len(point.positive.bucket_counts)
        assert sum(point.positive.bucket_counts) == point.count
        assert base**first < point.min * 1.000001
        assert base ** (first + 1) * 1.000001 > point.min
        assert point.max <= base ** (first + buckets) * 1.000001


def test_counters_count_from_the_beginning() -> None:
    """Cumulative sums begin with the process and grow; deltas begin with the window."""
    held = supply(batch=1000)
    [first] = [request for request in held.requests(0) if request.signal is METRICS]
    starts = {
        point.start_time_unix_nano
        for _, metric in records(METRICS, first.data)
        if metric.WhichOneof("data") == "sum"
        for point in metric.sum.data_points
    }
    assert starts == {NOW_NS}
