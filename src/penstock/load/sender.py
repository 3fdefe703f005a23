"""What a server answers, and what a client does then: OTLP's rules for trying again.

An answer that says when to come again is believed. Otherwise the pause doubles, with jitter. A
request that found nobody in `patience_s` counts as refused, and so does one that can never
succeed. What is tried again is the same request byte for byte.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from penstock.model.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from penstock.load.supply import Request
    from penstock.load.tally import Tally
    from penstock.model.clock import Clock
    from penstock.otel.signals import Signal

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0


class Outcome(enum.Enum):
    """What became of a request."""

    ACKNOWLEDGED = "acknowledged"
    RETRY = "retry"
    REFUSED = "refused"


class Answer(NamedTuple):
    """What a server said."""

    outcome: Outcome
    message: str = ""
    retry_after_s: float | None = None
    rejected: int = 0


ACKNOWLEDGED: Final = Answer(Outcome.ACKNOWLEDGED)


class Sender(Protocol):
    """One connection; it is opened again where it broke."""

    async def send(self, signal: Signal, data: bytes) -> Answer:
        """Sends one request; never raises for what a server or a network does."""
        ...

    async def close(self) -> None:
        """Lets go of the connection."""
        ...


class Delivery:
    """Sends requests until they are acknowledged or refused, and counts."""

    def __init__(
        self,
        tally: Tally,
        clock: Clock,
        random: Random,
        patience_s: float,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._tally = tally
        self._clock = clock
        self._random = random
        self._patience_s = patience_s
        self._sleep = sleep

    async def deliver(self, sender: Sender, request: Request, due: float) -> None:
        """`due`: when it should have been sent; its latency begins then."""
        self._tally.requests += 1
        answer = await sender.send(request.signal, request.data)
        began = self._clock.monotonic()
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, self._random)
        while answer.outcome is Outcome.RETRY:
            wait_s = answer.retry_after_s
            if wait_s is None:
                wait_s = backoff.next_s()
            if self._clock.monotonic() + wait_s - began > self._patience_s:
                break
            await self._sleep(wait_s)
            self._tally.retried += 1
            answer = await sender.send(request.signal, request.data)
        self._count(request, answer, due)

    def _count(self, request: Request, answer: Answer, due: float) -> None:
        tally = self._tally
        if answer.outcome is not Outcome.ACKNOWLEDGED:
            tally.refused += 1
            tally.first_refusal = tally.first_refusal or answer.message
            return
        tally.acknowledged += 1
        tally.bytes += len(request.data)
        tally.rejected += answer.rejected
        tally.took(self._clock.monotonic() - due)
        name = {"traces": "spans", "logs": "logs", "metrics": "data_points"}[request.signal.value]
        setattr(tally, name, getattr(tally, name) + request.records)


def acknowledged(signal: Signal, response: bytes) -> Answer:
    """From the body of a response, which is empty where everything was taken."""
    if not response:
        return ACKNOWLEDGED
    # all three classes have it, their common one does not
    partial = signal.response_class.FromString(response).partial_success  # type: ignore[attr-defined]
    rejected = getattr(partial, f"rejected_{signal.records.replace(' ', '_')}")
    return Answer(Outcome.ACKNOWLEDGED, partial.error_message, rejected=rejected)


def retry_delay_s(status: bytes) -> float | None:
    """What a `google.rpc.Status` says in its RetryInfo."""
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    info = RetryInfo()
    for detail in Status.FromString(status).details:
        if detail.Unpack(info):
            return float(info.retry_delay.ToMilliseconds() / 1000)
    return None
