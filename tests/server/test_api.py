"""The rest of the API of a real server: topics, subscribers, its description, and tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client import RemoteSubscriber
from penstock.otel import Signal
from penstock.server.auth import Gate, Role
from penstock.server.configuration.config import Config
from penstock.server.querying.queries import Queries
from penstock.server.supervisor import web_application
from penstock.server.web.openapi import document
from tests.server.running import Answer, Server, serving
from tests.server.samples import ids, logs, traces

ALL, ONE, TWO = "a-token-for-all", "a-token-for-one", "a-token-for-two"
NAMES = "SELECT DISTINCT namespace || ':' || name FROM spans ORDER BY 1"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with tokens, and with a span of each of three namespaces."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = folder / "tokens"
    tokens.write_text(f"{ALL} *\n{ONE} one\n{TWO} one,two\n")
    with serving(folder / "data", config={"auth": {"tokens_file": str(tokens)}}) as server:
        for name in ("one", "two", "three"):
            heads = {"authorization": f"Bearer {ALL}", "x_penstock_namespace": name}
            assert server.post(Signal.TRACES, traces(name), **heads).status == 200
            assert server.post(Signal.LOGS, logs(name), **heads).status == 200
        yield server


def with_token(
    server: Server, token: str, method: str, path: str, body: Any = None, **headers: str
) -> Answer:
    """A request to the web port with a token."""
    heads = {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else json.dumps(body).encode()
    heads["authorization"] = f"Bearer {token}"
    return server.ask(method, f"/api/v1/{path}", data, port="web", headers=heads)


# --- topics and subscribers --------------------------------------------------------------------


def test_topics_say_where_they_end_and_what_is_sealed(server: Server) -> None:
    """At this moment, not at the last seal."""
    server.post(Signal.LOGS, logs("x"))
    [topic] = [t for t in server.get("/api/v1/topics").json["topics"] if t["name"] == "logs"]
    assert (topic["topic"], topic["partition"], topic["end"]) == ("/default/logs", 0, 1)
    server.ask("POST", "/api/v1/flush", port="web")
    [topic] = [t for t in server.get("/api/v1/topics").json["topics"] if t["name"] == "logs"]
    assert (topic["sealed"], topic["segments"], topic["open_bytes"]) == (1, 1, 0)


def test_subscribers_and_their_lag_are_listed(server: Server) -> None:
    """With what they have not answered."""
    server.post(Signal.TRACES, traces("lagging"))
    location = f"grpc://127.0.0.1:{server.ready['flight']}"
    with RemoteSubscriber(location, "/default/traces", "slow") as subscriber:
        subscriber.register()
    server.ask("POST", "/api/v1/flush", port="web")
    listed = server.get("/api/v1/subscribers").json["subscribers"]
    [found] = [each for each in listed if each["subscriber"] != "lake"]
    place = (found["topic"], found["partition"], found["subscriber"])
    assert place == ("/default/traces", 0, "slow")
    assert (found["lag_bundles"], found["acked"], found["active"]) == (1, 0, True)


# --- the description ---------------------------------------------------------------------------


def test_every_route_of_the_api_is_described() -> None:
    """And nothing that is not there."""
    router = web_application(Config(), [], Queries(Config()))
    there = {(r.path, r.method.lower()) for r in router.routes if r.path.startswith("/api/v1/")}
    described = {(path, how) for path, ways in document()["paths"].items() for how in ways}
    assert described == there


def test_description_is_served(server: Server) -> None:
    """As JSON, with references that lead somewhere."""
    found = server.get("/api/v1/openapi.json").json
    assert found == json.loads(json.dumps(document()))
    assert "#/components/schemas/Status" in json.dumps(found)
    assert "Status" in found["components"]["schemas"]


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/api/v1/query", 405, "POST"),
        ("POST", "/api/v1/topics", 405, "GET"),
        ("DELETE", "/api/v1/hot-snapshot", 405, "POST"),
        ("GET", "/api/v1/", 404, None),
        ("GET", "/api/v1/traces/", 404, None),
        ("GET", "/api/v1/traces/a/b", 404, None),
        ("GET", "/api/v1/query/", 404, None),
    ],
)
def test_other_paths_and_methods_are_refused(
    server: Server, method: str, path: str, status: int, allow: str | None
) -> None:
    """With a sentence, and with the method that is right."""
    answer = server.ask(method, path, port="web")
    assert (answer.status, answer.headers.get("allow")) == (status, allow)
    assert answer.json["message"]


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://["]
)
def test_page_of_another_site_is_not_answered(server: Server, origin: str) -> None:
    """A browser would ask for it; its own pages are answered."""
    own = f"http://127.0.0.1:{server.ready['web']}"
    body = b'{"sql": "SELECT 1"}'
    for asked, status in ((origin, 403), (own, 200)):
        heads = {"origin": asked}
        answer = server.ask("POST", "/api/v1/query", body, port="web", headers=heads)
        assert answer.status == status


# --- tokens and namespaces ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "header", "seen"),
    [
        (ALL, None, ["one:one", "three:three", "two:two"]),
        (ALL, "two", ["two:two"]),
        (ONE, None, ["one:one"]),
        (TWO, None, ["one:one", "two:two"]),
        (TWO, "two", ["two:two"]),
        (ALL, "nobody", []),
    ],
)
def test_token_sees_the_rows_of_its_namespaces(
    guarded: Server, token: str, header: str | None, seen: list[str]
) -> None:
    """In every tier; the header narrows them to one."""
    heads = {} if header is None else {"x_penstock_namespace": header}
    answer = with_token(guarded, token, "POST", "query", {"sql": NAMES}, **heads)
    assert [name for (name,) in answer.json["rows"]] == seen


def test_token_cannot_ask_for_another_namespace(guarded: Server) -> None:
    """403, whatever the header says."""
    for name in ("three", "One", "one,three", "*"):
        heads = {"x_penstock_namespace": name}
        answer = with_token(guarded, ONE, "POST", "query", {"sql": NAMES}, **heads)
        assert (answer.status, "rows" in answer.json) == (403, False)


@pytest.mark.parametrize("path", ["query", "topics", "subscribers", "openapi.json", "hot-snapshot"])
def test_no_token_no_answer(guarded: Server, path: str) -> None:
    """Nor with one that is not known."""
    method = "POST" if path in ("query", "hot-snapshot") else "GET"
    assert guarded.ask(method, f"/api/v1/{path}", port="web").status == 401
    assert with_token(guarded, "not-a-token-of-ours", method, path).status == 401


def test_trace_of_another_namespace_is_not_found(guarded: Server) -> None:
    """As if it were not there."""
    path = "traces/" + ids("three")[0].hex()
    assert with_token(guarded, ONE, "GET", path).status == 404
    assert with_token(guarded, ALL, "GET", path).json["span_count"] == 1


def test_topics_of_other_namespaces_are_not_listed(guarded: Server) -> None:
    """Nor their subscribers."""
    found = with_token(guarded, TWO, "GET", "topics").json["topics"]
    assert {topic["namespace"] for topic in found} == {"one", "two"}
    listed = with_token(guarded, TWO, "GET", "subscribers").json["subscribers"]
    assert {each["topic"].split("/")[1] for each in listed} == {"one", "two"}


def test_snapshot_is_for_those_who_may_see_everything(guarded: Server) -> None:
    """It has the rows of every namespace."""
    assert with_token(guarded, ONE, "POST", "hot-snapshot").status == 403
    assert with_token(guarded, ALL, "POST", "hot-snapshot").json["row_count"] == 3


def test_reader_without_tokens_sees_everything() -> None:
    """Or the namespace that it asks for."""
    gate = Gate(None)
    assert gate.caller(None).readable([Role.QUERY], None) is None
    assert gate.caller(None).readable([Role.QUERY], "one") == {"one"}
