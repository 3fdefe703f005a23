"""OTLP/JSON whose keys are not what a reader expects: nothing is acknowledged and lost."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from penstock.otel import Signal
from tests.server.running import JSON, Server, serving
from tests.server.samples import ids

T = Signal.TRACES


def span(name: str) -> str:
    """As a document."""
    trace_id, span_id = (each.hex() for each in ids(name))
    return json.dumps({"traceId": trace_id, "spanId": span_id, "name": name})


def resource(*names: str) -> str:
    """With these spans."""
    return f'{{"scopeSpans": [{{"spans": [{", ".join(map(span, names))}]}}]}}'


A, B = resource("first"), resource("second")
REPEATED = {
    "resourceSpans": f'{{"resourceSpans": [{A}], "resourceSpans": [{B}]}}',
    "an empty one": f'{{"resourceSpans": [{A}], "resourceSpans": []}}',
    "its other name": f'{{"resourceSpans": [{A}], "resource_spans": [{B}]}}',
    "scopeSpans": f'{{"resourceSpans": [{A[:-1]}, "scopeSpans": []}}]}}',
    "spans": f'{{"resourceSpans": [{A}]}}'.replace("]}]}]}", f'], "spans": [{span("s")}]}}]}}]}}'),
    "name": f'{{"resourceSpans": [{A.replace("first", "x", 1)}]}}'.replace(
        '"name"', '"name": "y", "name"'
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For all of them."""
    with serving(tmp_path_factory.mktemp("keys") / "data") as started:
        yield started


@pytest.mark.parametrize("body", REPEATED.values(), ids=REPEATED)
def test_field_that_is_there_twice_is_refused(server: Server, body: str) -> None:
    """One of its values would take the place of the other; the client is told which field."""
    json.loads(body)
    answer = server.post(T, body.encode(), JSON)
    assert answer.status == 400, answer.body
    assert "is there twice" in answer.json["message"]


def test_sender_with_the_wrong_address_is_told(server: Server) -> None:
    """Fields that are not known are ignored, and OTLP has a place to say so."""
    answer = server.post(T, b'{"resourceLogs": [{"scopeLogs": []}]}', JSON)
    assert answer.status == 200
    text = 'nothing was stored: "resourceLogs" is ignored here, and there is no resourceSpans'
    assert answer.json == {"partialSuccess": {"errorMessage": text}}
    for body in (b"{}", b'{"resource_spans": [], "later": 1}'):
        assert server.post(T, body, JSON).json == {}


def test_nothing_of_what_was_refused_is_stored(server: Server) -> None:
    """The first value neither."""
    for body in REPEATED.values():
        assert server.post(T, body.encode(), JSON).status == 400
    body = f'{{"resourceSpans": [{resource("third")}], "later": 1, "later": 2}}'
    assert server.post(T, body.encode(), JSON).json == {}
    question = b'{"sql": "SELECT name FROM spans"}'
    answer = server.ask("POST", "/api/v1/query", question, port="web")
    assert answer.json["rows"] == [["third"]]
