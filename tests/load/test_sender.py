"""What is tried again, when, how often, and how it is counted."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.load.sender import ACKNOWLEDGED, Answer, Delivery, Outcome, acknowledged
from penstock.load.supply import Request
from penstock.load.tally import Tally
from penstock.otel.signals import Signal
from tests.simulation.manual_pool import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSED = Answer(Outcome.REFUSED, "no")
BUSY = Answer(Outcome.RETRY, "busy")


def later(seconds: float) -> Answer:
    """Comes with a time to try again."""
    return Answer(Outcome.RETRY, "later", retry_after_s=seconds)


class Scripted:
    """A sender that answers as it is told; the last answer for ever."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = list(answers)
        self.sent: list[bytes] = []

    async def send(self, _: Signal, data: bytes) -> Answer:
        """One answer."""
        self.sent.append(data)
        return self._answers[min(len(self.sent), len(self._answers)) - 1]

    async def close(self) -> None:
        """Nothing to close."""


class Delivered:
    """One request, delivered on a clock that only pauses move."""

    def __init__(self, *answers: Answer, signal: Signal = Signal.TRACES) -> None:
        self.clock = ManualClock()
        self.tally = Tally()
        self.pauses: list[float] = []
        self.sender = Scripted(answers)
        delivery = Delivery(self.tally, self.clock, Random(1), 30.0, self._sleep)
        request = Request(signal, b"data", 10)
        asyncio.run(delivery.deliver(self.sender, request, self.clock.monotonic()))

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(seconds)


def test_acknowledged_request_is_sent_once() -> None:
    """And counted with its records and bytes."""
    delivered = Delivered(ACKNOWLEDGED)
    tally = delivered.tally
    assert delivered.sender.sent == [b"data"]
    assert (tally.requests, tally.acknowledged, tally.refused, tally.retried) == (1, 1, 0, 0)
    assert (tally.spans, tally.bytes) == (10, 4)


@pytest.mark.parametrize(
    ("signal", "counted"),
    [(Signal.TRACES, (10, 0, 0)), (Signal.LOGS, (0, 10, 0)), (Signal.METRICS, (0, 0, 10))],
)
def test_records_are_counted_by_signal(signal: Signal, counted: tuple[int, int, int]) -> None:
    """Spans, log records and data points."""
    tally = Delivered(ACKNOWLEDGED, signal=signal).tally
    assert (tally.spans, tally.logs, tally.data_points) == counted


def test_rejected_records_are_counted() -> None:
    """Though the request is acknowledged."""
    tally = Delivered(Answer(Outcome.ACKNOWLEDGED, "three", rejected=3)).tally
    assert (tally.acknowledged, tally.rejected) == (1, 3)


def test_server_that_says_when_is_believed() -> None:
    """The same bytes come again, after exactly those times."""
    delivered = Delivered(later(0.25), later(7.0), ACKNOWLEDGED)
    assert delivered.pauses == [0.25, 7.0]
    assert delivered.sender.sent == [b"data"] * 3
    assert (delivered.tally.acknowledged, delivered.tally.retried) == (1, 2)


def test_pauses_double_where_the_server_does_not_say() -> None:
    """With jitter, up to a bound."""
    delivered = Delivered(*[BUSY] * 6, ACKNOWLEDGED)
    for pause, bound in zip(delivered.pauses, [0.2, 0.4, 0.8, 1.6, 3.2, 5.0], strict=True):
        assert 0.0 <= pause <= bound
    assert len(set(delivered.pauses)) == 6


def test_latency_is_until_the_acknowledgement() -> None:
    """Pauses included."""
    latency_ms = Delivered(later(2.0), ACKNOWLEDGED).tally.latency_ms(0.5)
    assert latency_ms is not None
    assert 1990 <= latency_ms <= 2050


def test_permanent_refusal_is_not_tried_again() -> None:
    """It is counted, with the first one's words."""
    delivered = Delivered(REFUSED, ACKNOWLEDGED)
    assert delivered.sender.sent == [b"data"]
    assert (delivered.tally.refused, delivered.tally.first_refusal) == (1, "no")
    assert (delivered.tally.spans, delivered.tally.bytes) == (0, 0)


@pytest.mark.parametrize("answer", [BUSY, later(3.0), later(40.0)])
def test_patience_ends(answer: Answer) -> None:
    """A server that never takes it has refused it; no pause goes beyond the end."""
    delivered = Delivered(answer)
    assert sum(delivered.pauses) <= 30.0
    assert delivered.tally.refused == 1
    assert delivered.tally.retried == len(delivered.pauses)


def test_empty_response_is_a_full_success() -> None:
    """And needs no look at its parts."""
    assert acknowledged(Signal.TRACES, b"") is ACKNOWLEDGED


@pytest.mark.parametrize("signal", Signal)
def test_partial_success_says_how_many_were_rejected(signal: Signal) -> None:
    """In the field that the signal has for it."""
    answer = acknowledged(signal, signal.response(3, "three were bad"))
    assert answer == Answer(Outcome.ACKNOWLEDGED, "three were bad", rejected=3)
