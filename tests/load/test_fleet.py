"""Processes that begin together, end together, and tell what they did."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from penstock.children.asking import Child
from penstock.children.frames import encode_document
from penstock.load.fleet import PROCESS, run_load
from penstock.load.plan import Plan
from penstock.model.errors import PenstockError
from penstock.otel.signals import Signal
from tests.load.helpers import records
from tests.load.receiver import Reply, receiver
from tests.patience import PATIENCE_S, until

if TYPE_CHECKING:
    from penstock.load.tally import Tally


def plan(url: str, **settings: object) -> Plan:
    """A short run."""
    return Plan(**{"endpoint": url, "seconds": None, "spans": 60, "batch": 20, **settings})  # type: ignore[arg-type]


def test_everything_planned_arrives_once() -> None:
    """From two processes; every span with an id of its own."""
    with receiver() as server:
        tally = run_load(plan(server.url, processes=2, spans=90))
        bodies = server.bodies(Signal.TRACES)
        requests = len(server.got)
    spans = [span for body in bodies for _, span in records(Signal.TRACES, body)]
    assert len(spans) == len({span.span_id for span in spans}) == tally.spans == 90
    assert tally.requests == tally.acknowledged == requests
    assert tally.bytes > sum(map(len, bodies))
    assert tally.seconds > 0
    assert tally.latency_ms(0.99) is not None


def test_busy_server_gets_it_again_byte_for_byte() -> None:
    """And the refusals are no loss."""
    busy = Reply(429, {"Retry-After": "0"})
    with receiver(busy, busy) as server:
        tally = run_load(plan(server.url, spans=20, signals=("traces",)))
        bodies = server.bodies(Signal.TRACES)
    assert len(bodies) == 3
    assert len(set(bodies)) == 1
    assert (tally.acknowledged, tally.retried, tally.spans) == (1, 2, 20)


def test_refused_requests_are_told() -> None:
    """With the server's reason."""
    with receiver(always=Reply(400, {}, b"not today")) as server:
        tally = run_load(plan(server.url, signals=("traces",)))
    assert (tally.requests, tally.refused, tally.acknowledged) == (3, 3, 0)
    assert tally.first_refusal == "HTTP 400: not today"


def test_progress_ends_with_everything() -> None:
    """It never goes back."""
    seen: list[Tally] = []
    with receiver() as server:
        tally = run_load(plan(server.url), seen.append)
    assert seen[-1] == tally
    assert [each.spans for each in seen] == sorted(each.spans for each in seen)


def test_nobody_there_is_said_at_once() -> None:
    """Before any process is started."""
    with receiver() as server:
        url = server.url
    with pytest.raises(PenstockError, match="nobody answers at"):
        run_load(plan(url), module="no_such_module")


def test_process_that_dies_ends_the_run_and_the_others() -> None:
    """Whatever they do."""
    with receiver() as server, pytest.raises(PenstockError, match="ended with 3"):
        run_load(plan(server.url, processes=2), module="tests.load.dying")


def test_process_ends_with_who_started_it() -> None:
    """The end of its stdin is the end of its work."""
    with receiver() as server:
        orders = {"plan": asdict(plan(server.url, seconds=600.0, spans=None)), "number": 0}
        child = Child(PROCESS)
        assert child.ask([encode_document(orders)], PATIENCE_S)
        asking = child.ask_all([encode_document({"start": True})], PATIENCE_S)
        next(asking)
        assert server.first.wait(PATIENCE_S)
        child._questions.close()
        until(lambda: child.exit_code == 1)
        asking.close()  # type: ignore[attr-defined]  # it is a generator
        child.end()
