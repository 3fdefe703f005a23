"""What the tests of the load generator share."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from penstock.load.plan import Plan
from penstock.load.shop import Shop
from penstock.load.supply import Supply
from tests.simulation.manual_pool import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.load.shop import Span
    from penstock.otel.signals import Signal

NOW_NS = 1_790_000_000_000_000_000


def supply(process: int = 0, clock: ManualClock | None = None, **settings: Any) -> Supply:
    """The requests of one process; the clock stands still."""
    plan = Plan(**{"batch": 50, "seed": 1, **settings})
    return Supply(plan, process, clock or ManualClock(NOW_NS / 1e9))


def spans(count: int, seed: int = 1) -> list[Span]:
    """What the shop makes."""
    return Shop(Random(seed)).spans(count)


def parsed(signal: Signal, data: bytes) -> Any:
    """The official message of a request."""
    return signal.request_class.FromString(data)


def records(signal: Signal, data: bytes) -> Iterator[tuple[str, Any]]:
    """The service and the record, of every span, log record or metric."""
    outer, inner, held = signal.field_names
    for resource in getattr(parsed(signal, data), outer):
        [service] = [
            pair.value.string_value
            for pair in resource.resource.attributes
            if pair.key == "service.name"
        ]
        for scope in getattr(resource, inner):
            for record in getattr(scope, held):
                yield service, record


def attributes(record: Any) -> dict[str, Any]:
    """Of a record, by key, as `AnyValue`."""
    return {pair.key: pair.value for pair in record.attributes}
