"""OTLP over HTTP, without a network."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import zstandard
from google.protobuf.json_format import MessageToDict, ParseDict
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from penstock.otel import Signal
from penstock.server.auth import Gate
from penstock.server.configuration.config import Limits
from penstock.server.receiving.admission import Admission
from penstock.server.receiving.http import OtlpHttp
from penstock.server.receiving.ingest import Intake
from penstock.server.refusals import Cause, Refusal
from tests.otel.samples import full_request
from tests.server.asgi import END, FakeChecks, FakeIngest, call
from tests.server.running import JSON, PROTOBUF, Answer
from tests.server.samples import sample, traces

T = Signal.TRACES
BODY = traces("a span")
TEXT = b"""{"resourceSpans": [{"scopeSpans": [{"spans": [{
    "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "a"}]}]}]}
"""


class Http:
    """The application with something that stands in for what is behind it."""

    def __init__(self, folder: Path, tokens: Path | None = None, **limits: Any) -> None:
        bounds = Limits(**{"disk_free": 0, "memory": None, **limits})
        self.ingest = FakeIngest()
        self.admission = Admission(bounds, folder)
        self.checks = FakeChecks(bounds)
        ways = (self.ingest, Gate(tokens), self.admission, self.checks, bounds)
        self.app = OtlpHttp(Intake(*ways))  # type: ignore[arg-type]

    def ask(self, method: str, path: str, **more: Any) -> Answer | None:
        """A request."""
        return asyncio.run(call(self.app, method, path, **more))

    def post(
        self, *body: bytes | None, kind: str = PROTOBUF, path: str = "/v1/traces", **headers: str
    ) -> Answer:
        """A request with these pieces of a body; `content_encoding` is `content-encoding`."""
        heads = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.ask("POST", path, headers={"content-type": kind, **heads}, body=body)
        assert answer is not None
        return answer

    @property
    def data(self) -> bytes:
        """Of the one request that came through."""
        [(_, _, data)] = self.ingest.taken
        return data


@pytest.fixture
def http(tmp_path: Path) -> Http:
    """With limits that matter to nobody."""
    return Http(tmp_path)


def status_of(answer: Answer) -> Status:
    """The status in a refusal, in the encoding that the answer says."""
    if answer.headers["content-type"] == PROTOBUF:
        return Status.FromString(answer.body)
    assert answer.headers["content-type"] == JSON
    return ParseDict(answer.json, Status())


@pytest.mark.parametrize("sent", Signal)
def test_protobuf_goes_in_as_it_is(http: Http, sent: Signal) -> None:
    """And is answered with the empty response of its signal."""
    data = sample(sent, "a", "b")
    answer = http.post(data, path=sent.http_path)
    assert http.ingest.taken == [(sent, "default", data)]
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == PROTOBUF


@pytest.mark.parametrize("sent", Signal)
def test_json_goes_in_as_protobuf(http: Http, sent: Signal) -> None:
    """The same request, and the answer is JSON too."""
    request = full_request(sent, 3, share=0.5)
    text = json.dumps(otlp_json(MessageToDict(request)))
    answer = http.post(text.encode(), kind=JSON, path=sent.http_path)
    assert (answer.status, answer.body) == (200, b"{}"), answer.body
    assert answer.headers["content-type"] == JSON
    assert MessageToDict(sent.request_class.FromString(http.data)) == MessageToDict(request)


def otlp_json(value: Any) -> Any:
    """Ids as OTLP has them, in hexadecimal, and not as protobuf's JSON."""
    import base64

    if isinstance(value, list):
        return [otlp_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: otlp_json(each) for name, each in value.items()}
    for name in {"traceId", "spanId", "parentSpanId"} & found.keys():
        found[name] = base64.b64decode(found[name]).hex()
    return found


@pytest.mark.parametrize(
    "kind",
    [
        "application/x-protobuf",
        "Application/X-Protobuf",
        "application/x-protobuf; charset=utf-8",
        " application/x-protobuf ;v=1",
    ],
)
def test_parameters_of_a_content_type_do_not_matter(http: Http, kind: str) -> None:
    """Nor does its case."""
    assert http.post(BODY, kind=kind).status == 200


def test_json_with_a_charset_is_json(http: Http) -> None:
    """Many clients say so."""
    assert http.post(TEXT, kind="application/json; charset=utf-8").status == 200


@pytest.mark.parametrize("kind", ["", "text/plain", "application/grpc", "application/protobuf+x"])
def test_other_content_types_are_unsupported(http: Http, kind: str) -> None:
    """415, explained in JSON."""
    answer = http.post(BODY, kind=kind)
    assert answer.status == 415
    assert PROTOBUF in status_of(answer).message
    assert http.ingest.taken == []


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/traces/", "/v1/profiles", "/v1/Traces", "/x"])
def test_other_paths_are_not_found(http: Http, path: str) -> None:
    """With a status like any other error."""
    answer = http.post(BODY, path=path)
    assert answer.status == 404
    assert path in status_of(answer).message


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_other_methods_are_told_of_post(http: Http, method: str) -> None:
    """405 with Allow."""
    answer = http.ask(method, "/v1/traces")
    assert answer is not None
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(BODY, mtime=0)),
        ("GZIP", gzip.compress(BODY, mtime=0)),
        ("gzip", gzip.compress(BODY[:5], mtime=0) + gzip.compress(BODY[5:], mtime=0)),
        ("zstd", zstandard.compress(BODY)),
        ("identity", BODY),
        ("", BODY),
    ],
)
def test_body_is_decompressed(http: Http, encoding: str, body: bytes) -> None:
    """As its encoding says, in as many parts as it has."""
    assert http.post(body, content_encoding=encoding).status == 200
    assert http.data == BODY


def test_json_may_be_compressed(http: Http) -> None:
    """It is decompressed first."""
    assert http.post(gzip.compress(TEXT, mtime=0), kind=JSON, content_encoding="gzip").status == 200


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, br"])
def test_other_encodings_are_unsupported(http: Http, encoding: str) -> None:
    """415, with the names of those that are not."""
    answer = http.post(BODY, content_encoding=encoding)
    assert answer.status == 415
    assert "gzip, zstd or identity" in status_of(answer).message


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(BODY, mtime=0)[:-1]),
        ("gzip", BODY),
        ("zstd", zstandard.compress(BODY)[:-1]),
        ("zstd", BODY),
        ("gzip", b""),
    ],
)
def test_truncated_or_wrong_encoding_is_invalid(http: Http, encoding: str, body: bytes) -> None:
    """400: the client must not send it again."""
    answer = http.post(body, content_encoding=encoding)
    assert answer.status == 400
    assert encoding in status_of(answer).message
    assert http.ingest.taken == []


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'{"resourceSpans": 7}', b"\xff"])
def test_wrong_json_is_invalid(http: Http, text: bytes) -> None:
    """400, explained in JSON."""
    answer = http.post(text, kind=JSON)
    assert answer.status == 400
    assert status_of(answer).code == 3
    assert status_of(answer).message


def test_body_in_pieces_is_one(http: Http) -> None:
    """However small they are."""
    assert http.post(*(BODY[at : at + 1] for at in range(len(BODY)))).status == 200
    assert http.data == BODY


@pytest.mark.parametrize("length", ["101", "99999999999999999999"])
def test_length_over_the_bound_is_refused_before_the_body(tmp_path: Path, length: str) -> None:
    """413; of what comes all the same no more than the bound is read."""
    http = Http(tmp_path, request=100)
    assert http.post(b"x" * 90, content_length=length).status == 413
    answer = http.post(*[b"x" * 90] * 9, content_length=length)
    assert (answer.status, answer.headers["connection"]) == (413, "close")


@pytest.mark.parametrize("length", [len(BODY) - 1, len(BODY) + 1, 0])
def test_body_of_another_length_than_announced_is_not_acknowledged(http: Http, length: int) -> None:
    """Whoever lost or invented bytes on the way is ours: the client sends it again."""
    answer = http.post(BODY, content_length=str(length))
    assert answer.status == 503
    assert "retry-after" in answer.headers
    assert http.ingest.taken == []


def test_body_over_the_bound_is_not_read_on(tmp_path: Path) -> None:
    """A body in chunks does not say how long it is."""
    http = Http(tmp_path, request=100)
    assert http.post(*[b"x" * 50] * 3).status == 413
    assert http.admission.in_flight_bytes == 0


def test_bomb_is_too_large(tmp_path: Path) -> None:
    """Of a body, what counts is what it becomes."""
    http = Http(tmp_path, decompressed=1000)
    assert http.post(gzip.compress(bytes(1001)), content_encoding="gzip").status == 413
    assert http.post(gzip.compress(bytes(1000)), content_encoding="gzip").status == 200


def test_body_that_does_not_end_times_out(tmp_path: Path) -> None:
    """408, the connection ends, and nothing is held for it any more."""
    http = Http(tmp_path, timeout=0.05)
    headers = {"content-type": PROTOBUF}
    answer = http.ask("POST", "/v1/traces", headers=headers, body=[BODY], stalls=True)
    assert answer is not None
    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert http.admission.in_flight_bytes == 0


def test_client_that_goes_away_leaves_nothing(http: Http) -> None:
    """Neither a part of its request nor bytes that are held."""
    headers = {"content-type": PROTOBUF}
    assert http.ask("POST", "/v1/traces", headers=headers, body=[BODY[:9], END]) is None
    assert http.ingest.taken == []
    assert http.admission.in_flight_bytes == 0


def test_refused_body_is_read_before_the_answer(tmp_path: Path) -> None:
    """Or the client, still sending, would see a reset instead; within the bounds of any body."""
    http = Http(tmp_path)
    seen = []

    async def receive() -> dict[str, Any]:
        seen.append(1)
        return {"type": "http.request", "body": b"x", "more_body": len(seen) < 3}

    async def send(message: dict[str, Any]) -> None:
        assert len(seen) == 3, message

    scope = {"type": "http", "method": "POST", "path": "/nowhere", "headers": []}
    asyncio.run(http.app(scope, receive, send))


def test_refused_body_that_does_not_end_ends_the_connection(tmp_path: Path) -> None:
    """Nobody holds a connection by trickling what is not wanted."""
    http = Http(tmp_path, timeout=0.05)
    answer = http.ask("POST", "/nowhere", body=[b"x"], stalls=True)
    assert answer is not None
    assert (answer.status, answer.headers["connection"]) == (404, "close")


def test_bytes_are_held_while_they_arrive(tmp_path: Path) -> None:
    """Many bodies at once are bounded together: 429 with Retry-After."""
    http = Http(tmp_path, in_flight=1000)
    with http.admission.hold(990):
        answer = http.post(b"x" * 8, b"x" * 8)
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert http.admission.in_flight_bytes == 990


def test_bytes_are_held_until_the_answer(http: Http) -> None:
    """Decompressed ones, too."""
    held = []

    async def take(*_: Any) -> None:
        held.append(http.admission.in_flight_bytes)

    http.ingest.take = take  # type: ignore[method-assign]
    http.post(gzip.compress(bytes(5000)), content_encoding="gzip")
    assert held[0] >= 5000
    assert http.admission.in_flight_bytes == 0


def test_pressure_puts_off_before_the_body(http: Http) -> None:
    """429 with the reason."""
    http.admission.pressure = "the disk has only 7 bytes left"
    answer = http.post(BODY)
    assert answer.status == 429
    assert "7 bytes" in status_of(answer).message


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
@pytest.mark.parametrize(
    ("cause", "status"), [(Cause.BUSY, 429), (Cause.UNAVAILABLE, 503), (Cause.INVALID, 400)]
)
def test_refusal_is_a_status_in_the_encoding_of_the_request(
    http: Http, kind: str, cause: Cause, status: int
) -> None:
    """Code, message and RetryInfo; in a header, the time to wait."""
    wait = None if cause is Cause.INVALID else 2.5
    http.ingest.error = Refusal(cause, "because", retry_after_s=wait)
    answer = http.post(BODY if kind == PROTOBUF else TEXT, kind=kind)
    found = status_of(answer)
    assert (answer.status, answer.headers["content-type"]) == (status, kind)
    assert (found.code, found.message) == (cause.grpc_code, "because")
    assert answer.headers.get("retry-after") == (None if wait is None else "3")
    assert [detail.Is(RetryInfo.DESCRIPTOR) for detail in found.details] == [True] * bool(wait)


@pytest.mark.parametrize(
    ("error", "status"), [(OSError("disk on fire"), 503), (ZeroDivisionError("secret"), 500)]
)
def test_error_that_nobody_expected_is_a_status_too(
    http: Http, error: Exception, status: int
) -> None:
    """What may pass is retryable; what went wrong inside is for the log, not for the client."""
    http.ingest.error = error
    answer = http.post(BODY)
    assert answer.status == status
    assert status_of(answer).code in (13, 14)
    assert str(error) not in status_of(answer).message
    assert http.admission.in_flight_bytes == 0


def test_refused_requests_are_let_go(tmp_path: Path) -> None:
    """At once, and not when memory is next collected: each may be large."""
    http = Http(tmp_path, decompressed=10**6)
    body = gzip.compress(bytes(2 * 10**6))
    http.ingest.error = Refusal(Cause.BUSY, "later", retry_after_s=1.0)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(10):
            assert http.post(body, content_encoding="gzip").status == 413
            assert http.post(bytes(10**6)).status == 429
        assert tracemalloc.get_traced_memory()[0] < 10**6
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("sent", Signal)
def test_partial_success_is_told(http: Http, sent: Signal) -> None:
    """In the response of its signal, with 200, as the specification says."""
    http.checks.rejected, http.checks.text = 2, "two are wrong"
    partial: Any = sent.response_class.FromString(
        http.post(BODY, path=sent.http_path).body
    ).partial_success  # type: ignore[attr-defined]
    assert partial.error_message == "two are wrong"
    assert getattr(partial, f"rejected_{sent.records.replace(' ', '_')}") == 2


def test_partial_success_in_json_has_the_names_of_the_specification(http: Http) -> None:
    """Lower camel case; a 64-bit number is a string."""
    http.checks.rejected, http.checks.text = 2, "two are wrong"
    assert http.post(TEXT, kind=JSON).json == {
        "partialSuccess": {"rejectedSpans": "2", "errorMessage": "two are wrong"}
    }


def test_namespace_comes_from_its_header(http: Http) -> None:
    """Its name is written in any case."""
    http.post(BODY, X_Penstock_Namespace="shop")
    assert http.ingest.taken == [(T, "shop", BODY)]


def test_namespace_may_be_of_any_language(http: Http) -> None:
    """Bytes beyond ASCII are UTF-8, as curl sends them."""
    http.post(BODY, x_penstock_namespace="caf\u00e9".encode().decode("latin-1"))
    assert http.ingest.taken == [(T, "café", BODY)]


def test_token_is_looked_at_before_the_body(tmp_path: Path) -> None:
    """401 says how to come in; 403 that this token never will."""
    tokens = tmp_path / "tokens"
    tokens.write_text("a-good-secret shop\n")
    http = Http(tmp_path, tokens)
    refused = http.post(BODY)
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    token = {"authorization": "Bearer a-good-secret"}
    assert http.post(BODY, x_penstock_namespace="other", **token).status == 403
    assert http.post(BODY, **token).status == 200
    assert [namespace for _, namespace, _ in http.ingest.taken] == ["shop"]


def test_what_is_not_http_is_left_alone(http: Http) -> None:
    """No WebSockets, no lifespan."""

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    asyncio.run(http.app({"type": "lifespan"}, nothing, nothing))
