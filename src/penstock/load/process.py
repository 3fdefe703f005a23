"""One sending process.

    python -m penstock.load.process

The first question is a plan, answered when it is ready. It begins with the next, tells twice a
second how far it is, and ends with what became of everything.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from random import Random
from typing import TYPE_CHECKING, Any, Final

from penstock.children.answering import begin
from penstock.load.plan import Endpoint, Plan
from penstock.load.rate import Pace
from penstock.load.sender import Delivery
from penstock.load.supply import Supply
from penstock.load.tally import Tally
from penstock.model.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.children.answering import Parent
    from penstock.load.sender import Sender

    NewSender = Callable[[Plan, Endpoint], Sender]

TELL_S: Final = 0.5


def new_sender(plan: Plan, endpoint: Endpoint) -> Sender:
    """For the endpoint's transport."""
    if endpoint.transport == "http":
        from penstock.load.http_sender import HttpSender

        return HttpSender(plan, endpoint)
    from penstock.load.grpc_sender import GrpcSender

    return GrpcSender(plan, endpoint)


class Process:
    """The connections of one process, and its share of the plan."""

    def __init__(self, plan: Plan, number: int, make: NewSender = new_sender) -> None:
        self._plan = plan
        self._number = number
        self._clock = SystemClock()
        self._supply = Supply(plan, number, self._clock)
        self._make = make
        self._began = self._used_s = 0.0
        self.tally = Tally()

    async def run(self) -> None:
        """Sends until the time is over or everything is sent, and every answer is there."""
        plan, endpoint = self._plan, Endpoint.parse(self._plan.endpoint)
        pace = Pace(plan, self._number, self._clock)
        self._began, self._used_s = pace.began, time.process_time()
        delivery = Delivery(self.tally, self._clock, Random(self._number), plan.patience_s)
        units = self._supply.units
        numbers = itertools.count() if units is None else iter(range(units))
        senders = [self._make(plan, endpoint) for _ in range(plan.concurrency)]
        try:
            async with asyncio.TaskGroup() as tasks:
                for sender in senders:
                    tasks.create_task(self._send(sender, numbers, pace, delivery))
        finally:
            self.look_at_clocks()
            for sender in senders:
                await sender.close()

    def look_at_clocks(self) -> None:
        """Notes how long it has taken so far."""
        self.tally.seconds = self._clock.monotonic() - self._began
        self.tally.cpu_seconds = time.process_time() - self._used_s

    async def _send(
        self, sender: Sender, numbers: Iterator[int], pace: Pace, delivery: Delivery
    ) -> None:
        for number in numbers:
            due = await pace.reach(number)
            if due is None:
                return
            for request in self._supply.requests(number):
                await delivery.deliver(sender, request, due)
                due = self._clock.monotonic()
            await asyncio.sleep(0)  # a unit may have nothing to send


async def _send_all(process: Process, parent: Parent) -> None:
    running = asyncio.create_task(process.run())
    while not running.done():
        await asyncio.wait([running], timeout=TELL_S)
        if not running.done():
            process.look_at_clocks()
            parent.say({"sent": process.tally.to_json()})
    await running
    parent.say({"sent": process.tally.to_json()})
    parent.answer()


def run(make: NewSender = new_sender, new_loop: Callable[[], Any] | None = None) -> None:
    """From the first question to the end."""
    parent = begin()
    questions = parent.documents()
    orders = next(questions)
    plan = Plan(**{**orders["plan"], "signals": tuple(orders["plan"]["signals"])})
    process = Process(plan, orders["number"], make)
    parent.say({"ready": True})
    next(questions)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_send_all(process, parent))


if __name__ == "__main__":
    run()
