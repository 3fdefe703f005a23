"""A day of telemetry with known answers, wherever its rows are."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import quantiles
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.pipeline.helpers import HOUR_NS, MORNING_NS, TRACES, Data
from tests.query.helpers import cold, hot, values, warm

MIDNIGHT_NS = MORNING_NS - 8 * HOUR_NS
SERVICES = ("cart", "mail", "shop")


@dataclass(frozen=True)
class Known:
    """A span as it was sent."""

    number: int
    service: str
    start_ns: int
    took_ns: int
    failed: bool
    tags: dict[str, str]

    @property
    def trace_id(self) -> str:
        """Five spans are a trace."""
        return f"{self.number // 5 + 1:032x}"


def _day() -> list[Known]:
    random = Random(7)
    return [
        Known(
            number,
            random.choice(SERVICES),
            MIDNIGHT_NS + random.randrange(24 * HOUR_NS),
            random.randrange(1, 10**9),
            random.random() < 0.1,
            {"tag": str(random.randrange(3))},
        )
        for number in range(1, 601)
    ]


DAY = _day()


def _request(spans: list[Known]) -> bytes:
    request = ExportTraceServiceRequest()
    for known in spans:
        resource = request.resource_spans.add()
        resource.resource.attributes.add(key="service.name").value.string_value = known.service
        span = resource.scope_spans.add().spans.add(name=f"span {known.number}")
        span.trace_id = bytes.fromhex(known.trace_id)
        span.span_id = known.number.to_bytes(8, "big")
        span.start_time_unix_nano = known.start_ns
        span.end_time_unix_nano = known.start_ns + known.took_ns
        span.status.code = 2 if known.failed else 0
        for key, value in known.tags.items():
            span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


REQUESTS = [_request(DAY[first : first + 20]) for first in range(0, len(DAY), 20)]


def _by_service() -> list[tuple[Any, ...]]:
    spans = defaultdict(list)
    for known in DAY:
        spans[known.service].append(known)
    return [
        (name, len(each), sum(one.failed for one in each), max(one.took_ns for one in each))
        for name, each in sorted(spans.items())
    ]


def _by_hour() -> list[tuple[int, int]]:
    hours = Counter((known.start_ns - MIDNIGHT_NS) // HOUR_NS for known in DAY)
    return sorted(hours.items())


def _tagged() -> list[tuple[str, int]]:
    return sorted(Counter(known.tags["tag"] for known in DAY if not known.failed).items())


def _afternoon() -> list[tuple[int]]:
    noon = MIDNIGHT_NS + 12 * HOUR_NS
    return [(sum(known.start_ns // 1000 >= noon // 1000 for known in DAY),)]


def _trace() -> list[tuple[str]]:
    wanted = DAY[300].trace_id
    return sorted((f"span {known.number}",) for known in DAY if known.trace_id == wanted)


def _median() -> list[tuple[float]]:
    return [(quantiles([known.took_ns for known in DAY], n=2)[0],)]


QUESTIONS: dict[str, Callable[[], list[Any]]] = {
    "SELECT service_name, count(*), count(*) FILTER (status_code = 'STATUS_CODE_ERROR'),"
    " max(duration_ns) FROM spans GROUP BY ALL ORDER BY ALL": _by_service,
    "SELECT hour(time), count(*) FROM spans GROUP BY ALL ORDER BY ALL": _by_hour,
    "SELECT attributes['tag'], count(*) FROM spans"
    " WHERE status_code <> 'STATUS_CODE_ERROR' GROUP BY ALL ORDER BY ALL": _tagged,
    "SELECT count(*) FROM spans WHERE time >= '2026-01-01 12:00'": _afternoon,
    f"SELECT name FROM spans WHERE trace_id = '{DAY[300].trace_id}' ORDER BY name": _trace,  # noqa: S608
    "SELECT median(duration_ns) FROM spans": _median,
    "SELECT count(*), count(DISTINCT (trace_id, span_id)) FROM spans": lambda: [(600, 600)],
    "SELECT ServiceName, count(), countIf(StatusCode = 'Error'), max(Duration) FROM otel_traces"
    " GROUP BY ServiceName ORDER BY ServiceName": _by_service,
}


def _hot(data: Data, stack: contextlib.ExitStack) -> None:
    stack.enter_context(hot(data, *REQUESTS))


def _warm(data: Data, _: contextlib.ExitStack) -> None:
    for first in range(0, len(REQUESTS), 10):
        warm(data, *REQUESTS[first : first + 10])


def _cold(data: Data, _: contextlib.ExitStack) -> None:
    for first in range(0, len(REQUESTS), 10):
        cold(data, *REQUESTS[first : first + 10])


def _spread(data: Data, stack: contextlib.ExitStack) -> None:
    cold(data, *REQUESTS[:10])
    cold(data, *REQUESTS[8:14])
    warm(data, *REQUESTS[12:20])
    stack.enter_context(hot(data, *REQUESTS[18:], *REQUESTS[:3]))


def _partitions(data: Data, stack: contextlib.ExitStack) -> None:
    cold(data, *REQUESTS[:10], partition=1)
    warm(data, *REQUESTS[10:20], topic=TRACES, partition=2)
    stack.enter_context(hot(data, *REQUESTS[20:], partition=3))


@pytest.mark.parametrize("place", [_hot, _warm, _cold, _spread, _partitions])
def test_day_has_the_same_answers_wherever_it_is(
    data: Data, place: Callable[[Data, contextlib.ExitStack], None]
) -> None:
    """Also where tiers overlap, because clients sent requests again."""
    with contextlib.ExitStack() as stack:
        place(data, stack)
        for _ in range(2):  # what is remembered changes nothing
            for sql, expected in QUESTIONS.items():
                assert values(data, sql) == expected(), sql
