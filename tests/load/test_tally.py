"""Counts of processes add up, and latencies are told within two percent."""

from __future__ import annotations

import json

import pytest

from penstock.load.tally import Tally


def tally_of(*seconds: float) -> Tally:
    """With these latencies."""
    tally = Tally()
    for each in seconds:
        tally.took(each)
    return tally


@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.9, 0.99, 1.0])
def test_quantiles_are_near_the_true_ones(quantile: float) -> None:
    """Never below them, and at most a step above."""
    values = [0.001 * number for number in range(1, 1001)]
    found = tally_of(*values).latency_ms(quantile)
    true_ms = max(1, quantile * 1000)
    assert found is not None
    assert true_ms * 0.999 <= found <= true_ms * 1.021


def test_no_latency_without_a_request() -> None:
    """Not even zero."""
    assert Tally().latency_ms(0.5) is None


def test_processes_side_by_side_add_up_but_for_their_time() -> None:
    """The run took as long as the longest."""
    one = Tally(requests=3, spans=30, seconds=2.0, cpu_seconds=1.0, first_refusal="")
    two = Tally(requests=4, spans=40, seconds=5.0, cpu_seconds=1.5, first_refusal="no")
    one.took(0.1)
    two.took(0.2)
    whole = Tally.together([one, two])
    assert (whole.requests, whole.spans, whole.seconds, whole.cpu_seconds) == (7, 70, 5.0, 2.5)
    assert whole.first_refusal == "no"
    assert whole.latencies.total() == 2
    assert whole.rate(whole.spans) == 14.0


def test_a_tally_goes_through_json_unchanged() -> None:
    """As between a process and who started it."""
    tally = tally_of(0.1, 0.1, 3.0)
    tally.spans, tally.first_refusal = 12, "nein, nicht möglich"
    assert Tally.from_json(json.loads(json.dumps(tally.to_json()))) == tally


def test_the_document_is_for_programs() -> None:
    """Counts, rates and two latencies; no buckets."""
    document = Tally(requests=2, acknowledged=2, spans=10, bytes=100, seconds=4.0).document()
    assert document["spans_per_second"] == 2.5
    assert document["requests_per_second"] == 0.5
    assert document["bytes_per_second"] == 25.0
    assert document["latency_p50_ms"] is None
    assert "latencies" not in document
    json.dumps(document)
