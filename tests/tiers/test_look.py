"""Every acknowledged row is found once, wherever it is."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.otel import Signal
from penstock.storage import DataDirectory
from penstock.store.outside import LAKE, acknowledge, read_delivered
from penstock.tiers.cut import Tier
from tests.otel.samples import full_request
from tests.pipeline.flush.helpers import Plain, logs
from tests.pipeline.helpers import LOGS, METRICS, TRACES, Data, spans, trace_id
from tests.query.helpers import answer, cold, hot, named, names, values, warm
from tests.simulation.calls import Call

REQUESTS = [spans(number, number + 1) for number in range(0, 12, 2)]
ALL = range(12)
TRACE_1 = trace_id(1).hex()
QUESTIONS = (
    "SELECT * EXCLUDE (_offset) FROM spans ORDER BY name",
    "SELECT service_name, count(*), min(time), max(duration_ns) FROM spans GROUP BY ALL",
    "SELECT name, attributes['number'] FROM spans WHERE time > '2026-01-01 12:00' ORDER BY ALL",
    "SELECT SpanName, Duration FROM otel_traces WHERE ServiceName = 'shop' ORDER BY ALL",
)


def _all_hot(data: Data, stack: contextlib.ExitStack) -> None:
    stack.enter_context(hot(data, *REQUESTS))


def _all_warm(data: Data, _: contextlib.ExitStack) -> None:
    warm(data, *REQUESTS)


def _all_cold(data: Data, _: contextlib.ExitStack) -> None:
    cold(data, *REQUESTS)


def _spread(data: Data, stack: contextlib.ExitStack) -> None:
    cold(data, *REQUESTS[:2])
    warm(data, *REQUESTS[2:4])
    stack.enter_context(hot(data, *REQUESTS[4:]))


@pytest.mark.parametrize("place", [_all_hot, _all_warm, _all_cold, _spread])
def test_answers_are_the_same_wherever_the_rows_are(
    data: Data, place: Callable[[Data, contextlib.ExitStack], None]
) -> None:
    """To every question, to the last value."""
    with contextlib.ExitStack() as stack:
        place(data, stack)
        found = [values(data, sql) for sql in QUESTIONS]
        assert names(data) == named(ALL)
    assert json.loads(json.dumps(found, default=str)) == _expected(data)


def _expected(other: Data) -> Any:
    """As they are with all of it in sealed segments; other tests say that this is right."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        data = Data(Path(folder) / "data")
        shutil.copy(other.root / "penstock.json", data.root)  # rows say where they are from
        warm(data, *REQUESTS)
        found = [values(data, sql) for sql in QUESTIONS]
    return json.loads(json.dumps(found, default=str))


def test_each_tier_can_be_asked_alone(data: Data) -> None:
    """Together they have everything, and no two the same."""
    cold(data, spans(0))
    warm(data, spans(1))
    with hot(data, spans(2)):
        found = {tier: names(data, tiers={tier}) for tier in Tier}
        assert found == {Tier.COLD: named([0]), Tier.WARM: named([1]), Tier.HOT: named([2])}
        assert names(data, tiers={Tier.HOT, Tier.COLD}) == named([0, 2])


@pytest.mark.parametrize("sent", Signal)
def test_every_signal_is_found_in_every_tier(data: Data, sent: Signal) -> None:
    """With all that a request can hold."""
    topic = {Signal.TRACES: TRACES, Signal.LOGS: LOGS, Signal.METRICS: METRICS}[sent]
    table = {Signal.TRACES: "spans", Signal.LOGS: "logs", Signal.METRICS: "metrics"}[sent]
    first, second, third = (full_request(sent, n).SerializeToString() for n in (1, 2, 3))
    cold(data, first, topic=topic)
    warm(data, second, topic=topic)
    with hot(data, third, topic=topic):
        found = [values(data, f"FROM {table}", tiers={tier}) for tier in Tier]
    assert all(found)


def test_request_is_seen_by_a_query_that_begins_after_its_acknowledgement(data: Data) -> None:
    """Each time, while the store seals by itself and nobody waits."""
    with hot(data) as store:
        for number in range(30):
            store.append_durable(spans(number))
            if number % 7 == 3:
                store.flush()
            assert len(names(data)) == number + 1


def test_nothing_is_missed_or_doubled_while_rows_move(data: Data) -> None:
    """A writer, a pipeline that commits, and a server that deletes what the lake has."""
    with hot(data) as store:
        store.register(LAKE)
        pipeline = Plain(data)
        for number in range(24):
            store.append_durable(spans(number))
            moving = Call(lambda: _move(data, store, pipeline))
            assert names(data) == named(range(number + 1))
            moving.end()
            assert moving.error is None
            assert names(data) == named(range(number + 1))
        assert len(store.segments) < 24


def _move(data: Data, store: Any, pipeline: Plain) -> None:
    store.flush()
    pipeline.run()
    delivered = read_delivered(data.root)
    assert delivered is not None
    through = {store.name: delivered.through["/default/traces/0"]}
    acknowledge(store, replace(delivered, through=through))


def test_span_that_was_sent_again_is_there_once(data: Data) -> None:
    """Whichever tiers have it; the lake's stays."""
    cold(data, spans(1), spans(2))
    warm(data, spans(2), spans(3), spans(3))
    with hot(data, spans(1), spans(3), spans(4), spans(4)):
        assert names(data) == named(range(1, 5))
        assert names(data, tiers={Tier.COLD}) == named([1, 2])


def test_equal_span_ids_in_two_traces_are_two_spans(data: Data) -> None:
    """An id belongs to its trace."""
    request: Any = Signal.TRACES.request_class.FromString(spans(1))
    [span] = request.resource_spans[0].scope_spans[0].spans
    span.trace_id = bytes(15) + b"\1"
    cold(data, spans(1))
    warm(data, request.SerializeToString())
    assert names(data) == named([1, 1])


def test_equal_log_records_of_one_request_are_two(data: Data) -> None:
    """Those of two requests are one that was sent again."""
    warm(data, logs("a", "a"), logs("a", "b"), topic=LOGS)
    assert values(data, "SELECT body FROM logs ORDER BY body") == [("a",), ("a",), ("b",)]


def test_partitions_and_namespaces_are_one_table(data: Data) -> None:
    """Every worker has its own partition, every tenant its own topic."""
    cold(data, spans(0), partition=0)
    warm(data, spans(1), partition=1)
    with hot(data, spans(2), partition=2):
        assert names(data) == named(range(3))


def test_damaged_segment_is_named_and_the_rest_found(data: Data) -> None:
    """The query answers, and says what it lacks."""
    warm(data, spans(0))
    warm(data, spans(1))
    path = data.segment(0)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-40])
    found = answer(data, "SELECT name FROM spans", partial=True)
    assert found.rows["name"].to_pylist() == named([1])
    assert any(path.name in warning for warning in found.warnings)


def test_lake_that_cannot_be_read_is_named(data: Data) -> None:
    """What is not in it is found all the same."""
    cold(data, spans(0))
    for path in (data.root / "lake" / "spans" / "metadata").glob("*.metadata.json"):
        path.write_text("{")
    with hot(data, spans(1)):
        found = answer(data, "SELECT name FROM spans", partial=True)
    assert "span 1" in found.rows["name"].to_pylist()
    assert any("metadata of the table spans" in warning for warning in found.warnings)


def test_empty_data_directory_has_empty_tables(data: Data) -> None:
    """A question before the first request is no error."""
    for table in ("spans", "logs", "metrics", "otel_traces", "otel_metrics_sum"):
        assert values(data, f"FROM {table}") == []


def test_data_directory_that_is_made_anew_is_another_one(data: Data) -> None:
    """What was remembered of the files that had the same names is forgotten."""
    for service in ("shop", "mail"):
        shutil.rmtree(data.root)
        DataDirectory(data.root).create()
        cold(data, spans(1, service=service))
        warm(data, spans(2, service=service))
        with hot(data, spans(3, service=service)):
            found = values(data, "SELECT DISTINCT service_name, count(*) FROM spans GROUP BY ALL")
            trace = values(data, f"FROM spans SELECT count(*) WHERE trace_id = '{TRACE_1}'")
        assert (found, trace) == ([(service, 3)], [(1,)])
