"""What a token may do: its roles, names that are the server's own, and how many subscribers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow.flight as pf
import pytest

from penstock.client import RemoteSubscriber
from penstock.otel import Signal
from tests.server.running import PROTOBUF, Server, serving, until
from tests.server.samples import traces

OLD, ALL, SENDS, READS, TAKES, OTHER, BOSS = (
    f"token-{name}-0123456789" for name in ("old", "all", "in", "query", "take", "other", "admin")
)
TOKENS = f"""
{OLD} shop
{ALL}
{SENDS} ingest=shop
{READS} query=shop
{TAKES} subscribe=shop
{OTHER} subscribe=shop
{BOSS} admin=*
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One with all these tokens, of which each may have three subscribers, and a sealed span."""
    folder = tmp_path_factory.mktemp("roles")
    (folder / "tokens").write_text(TOKENS)
    config = {"auth": {"tokens_file": str(folder / "tokens")}, "limits": {"subscribers": 3}}
    with serving(folder / "data", config=config) as started:
        heads = {"authorization": f"Bearer {ALL}", "x_penstock_namespace": "shop"}
        assert started.post(Signal.TRACES, traces("one"), **heads).status == 200
        assert ask(started, ALL, "POST", "/api/v1/flush").status == 200
        yield started


def ask(server: Server, token: str | None, method: str, path: str, body: Any = None) -> Any:
    """The web port's answer."""
    heads = {} if token is None else {"authorization": f"Bearer {token}"}
    data = None if body is None else json.dumps(body).encode()
    return server.ask(method, path, data, port="web", headers=heads)


def subscriber(server: Server, name: str, token: str = TAKES) -> RemoteSubscriber:
    """To the shop's spans."""
    location = f"grpc://127.0.0.1:{server.ready['flight']}"
    return RemoteSubscriber(location, "/shop/traces", name, token=token)


def known(server: Server) -> set[str]:
    """The subscribers that segments are kept for."""
    listed = ask(server, ALL, "GET", "/api/v1/subscribers").json["subscribers"]
    return {each["subscriber"] for each in listed} - {"lake"}


@pytest.mark.parametrize("name", ["lake", "Lake", "LAKE", " lake", "\uff4cake", "Archive"])
@pytest.mark.parametrize("token", [ALL, TAKES, BOSS])
def test_names_of_the_server_are_nobodys(server: Server, name: str, token: str) -> None:
    """Who answers as the lake deletes what never reached it; not even `admin` may."""
    with subscriber(server, name, token) as other:
        for act in (other.register, other.unregister, lambda: next(other.bundles(wait_s=0))):
            with pytest.raises(pf.FlightUnauthorizedError):
                act()
    assert not {each for each in known(server) if each.strip().casefold() == "lake"}


def test_reading_under_a_wrong_name_leaves_nothing_behind(server: Server) -> None:
    """Neither while it reads nor afterwards, though it was given bundles."""
    with subscriber(server, "mistyped") as reader:
        stream = reader.bundles()
        assert next(stream).messages == 1
        assert "mistyped" not in known(server)
        stream.close()
    assert "mistyped" not in known(server)


def test_first_answer_makes_a_subscriber_known(server: Server) -> None:
    """It goes on behind what it has answered."""
    with subscriber(server, "answers", OTHER) as reader:
        stream = reader.bundles()
        next(stream).ack()
        assert "answers" in known(server)
        stream.close()
        assert list(reader.bundles(wait_s=0)) == []
        reader.unregister()
    assert "answers" not in known(server)


def test_number_of_subscribers_is_bounded_by_token(server: Server) -> None:
    """Others have their own bound; who goes makes room, by registering or by a first answer."""
    names = [f"bounded-{number}" for number in range(3)]
    for name in names:
        with subscriber(server, name) as one:
            assert one.register()
    with subscriber(server, "one-too-many") as more:
        with pytest.raises(pf.FlightUnauthorizedError, match=r"limits\.subscribers"):
            more.register()
        stream = more.bundles()
        delivery = next(stream)
        with pytest.raises(pf.FlightError, match=r"limits\.subscribers"):
            delivery.ack()
        stream.close()
        assert "one-too-many" not in known(server)
        with subscriber(server, "of-another", OTHER) as other:
            assert other.register()
            other.unregister()
        with subscriber(server, names[0]) as first:
            first.unregister()
        assert more.register()
        more.unregister()
    for name in names[1:]:
        with subscriber(server, name) as one:
            one.unregister()


def test_what_fails_does_not_count(server: Server) -> None:
    """Registering with a topic that is not there, as often as one likes."""
    location = f"grpc://127.0.0.1:{server.ready['flight']}"
    for number in range(5):
        nowhere = RemoteSubscriber(location, "/shop/logs", f"n{number}", token=OTHER)
        with nowhere, pytest.raises(pf.FlightServerError, match="there is no"):
            nowhere.register()


def test_health_without_a_token_is_well_or_not(server: Server) -> None:
    """With one that oversees everything it says what is wrong."""
    for token in (None, "not-a-token-of-ours", OLD):
        assert ask(server, token, "GET", "/healthz").json == {"healthy": True}
    for token in (ALL, BOSS):
        found = ask(server, token, "GET", "/healthz").json
        assert found == {"healthy": True, "problems": []}


@pytest.mark.parametrize(("method", "path"), [("GET", "/metrics"), ("POST", "/api/v1/flush")])
def test_what_concerns_everybody_is_for_admin(server: Server, method: str, path: str) -> None:
    """Or for a token of all namespaces."""
    for token in (OLD, SENDS, READS, TAKES):
        assert ask(server, token, method, path).status == 403
    for token in (ALL, BOSS):
        assert ask(server, token, method, path).status == 200


def test_status_shows_others_nothing_of_the_server(server: Server) -> None:
    """Neither failures, which name topics, nor how much comes in."""
    [worker] = ask(server, OLD, "GET", "/api/v1/status").json["workers"]
    assert worker.keys() == {"worker", "pressure", "disk_full"}
    [worker] = ask(server, BOSS, "GET", "/api/v1/status").json["workers"]
    assert worker["failures"] == []


# --- withdrawn -----------------------------------------------------------------------------------


def test_withdrawn_token_ends_its_streams(tmp_path: Path) -> None:
    """Those of subscribers and those of rows; the others go on."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TAKES} subscribe=default\n{OTHER} subscribe=default\n{ALL}\n")
    with serving(tmp_path / "data", config={"auth": {"tokens_file": str(tokens)}}) as server:
        heads = {"authorization": f"Bearer {ALL}"}
        assert server.post(Signal.TRACES, traces("one"), **heads).status == 200
        assert ask(server, ALL, "POST", "/api/v1/flush").status == 200
        location = f"grpc://127.0.0.1:{server.ready['flight']}"
        with (
            RemoteSubscriber(location, "/default/traces", "a", token=TAKES) as withdrawn,
            RemoteSubscriber(location, "/default/traces", "b", token=OTHER) as kept,
        ):
            stream, other = withdrawn.bundles(), kept.bundles()
            held, _ = next(stream), next(other)
            replace(tokens, f"{OTHER} subscribe=default\n{ALL}\n")
            with pytest.raises(pf.FlightUnauthenticatedError, match="withdrawn"):
                next(stream)
            with pytest.raises(pf.FlightUnauthenticatedError):
                held.ack()
            server.post(Signal.TRACES, traces("two"), **heads)
            assert ask(server, ALL, "POST", "/api/v1/flush").status == 200
            assert next(other).messages == 1
            other.close()


@pytest.mark.parametrize("broken", ["", "short\n", None], ids=["empty", "wrong", "missing"])
def test_tokens_file_that_cannot_be_read_lets_nobody_in(tmp_path: Path, broken: str | None) -> None:
    """All are asked to come again, health is red, and a mended file lets in without a restart."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{ALL}\n")
    with serving(tmp_path / "data", config={"auth": {"tokens_file": str(tokens)}}) as server:
        heads = {"authorization": f"Bearer {ALL}"}
        assert server.post(Signal.TRACES, traces("one"), **heads).status == 200
        if broken is None:
            tokens.unlink()
        else:
            replace(tokens, broken)
        until(lambda: server.post(Signal.TRACES, traces("two"), **heads).status == 503)
        assert ask(server, ALL, "GET", "/api/v1/status").status == 503
        health = until(lambda: (a := server.get("/healthz")).status == 503 and a)
        assert health.json == {"healthy": False}
        location = f"grpc://127.0.0.1:{server.ready['flight']}"
        options = pf.FlightCallOptions(headers=[(b"authorization", f"Bearer {ALL}".encode())])
        with pf.connect(location) as client, pytest.raises(pf.FlightUnavailableError):
            list(client.list_actions(options))
        replace(tokens, f"{ALL}\n")
        until(lambda: server.post(Signal.TRACES, traces("three"), **heads).status == 200)
        until(lambda: server.get("/healthz").status == 200)


def replace(path: Path, text: str) -> None:
    """As careful people do it."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


# --- on its way when it is withdrawn -------------------------------------------------------------


@pytest.fixture
def withdrawing(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """A server of its own, and its tokens file."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{ALL}\n{OTHER} *\n")
    config = {"auth": {"tokens_file": str(tokens)}, "query": {"timeout": "10m", "processes": 1}}
    with serving(tmp_path / "data", config=config) as server:
        yield server, tokens


@pytest.mark.parametrize(
    ("port", "path", "kind", "body"),
    [
        ("http", "/v1/traces", PROTOBUF, traces("late")),
        ("web", "/api/v1/query", "application/json", b'{"sql": "SELECT 1"}'),
    ],
    ids=["otlp", "query"],
)
def test_request_on_its_way_is_refused(
    withdrawing: tuple[Server, Path], port: str, path: str, kind: str, body: bytes
) -> None:
    """Its head came with a token that was good, its body after that was withdrawn."""
    server, tokens = withdrawing
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {ALL}"]
    lines += [f"content-type: {kind}", f"content-length: {len(body)}", "", ""]
    with server.socket(port) as connection, connection.makefile("rb") as file:
        connection.sendall("\r\n".join(lines).encode() + body[:5])
        # A second request, let in on the same loop, shows that the first one's head was read.
        assert server.get("/api/v1/status", authorization=f"Bearer {ALL}").status == 200
        replace(tokens, f"{OTHER} *\n")
        connection.sendall(body[5:])
        assert file.readline().startswith(b"HTTP/1.1 401 ")


def test_query_of_a_withdrawn_token_ends(withdrawing: tuple[Server, Path]) -> None:
    """At once, and not when its time is over; its place is another's."""
    server, tokens = withdrawing
    forever = b'{"sql": "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"}'
    lines = ["POST /api/v1/query HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {ALL}"]
    lines += [f"content-length: {len(forever)}", "", ""]
    with server.socket("web") as connection, connection.makefile("rb") as file:
        connection.sendall("\r\n".join(lines).encode() + forever)
        assert server.get("/api/v1/status", authorization=f"Bearer {ALL}").status == 200
        replace(tokens, f"{OTHER} *\n")
        assert file.readline().startswith(b"HTTP/1.1 401 ")
    question = b'{"sql": "SELECT 1"}'
    heads = {"authorization": f"Bearer {OTHER}"}
    answer = server.ask("POST", "/api/v1/query", question, port="web", headers=heads)
    assert answer.status == 200


def test_message_on_its_way_is_refused(withdrawing: tuple[Server, Path]) -> None:
    """The same over gRPC."""
    server, tokens = withdrawing

    def message() -> Iterator[bytes]:
        replace(tokens, f"{OTHER} *\n")
        yield traces("late")

    with server.channel() as channel:
        call = channel.stream_unary(Signal.TRACES.grpc_method)
        with pytest.raises(grpc.RpcError) as refused:
            call(message(), metadata=(("authorization", f"Bearer {ALL}"),))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_changed_rights_end_a_stream_too(withdrawing: tuple[Server, Path]) -> None:
    """Who has less than it had is let in anew, or not."""
    server, tokens = withdrawing
    heads = {"authorization": f"Bearer {ALL}"}
    assert server.post(Signal.TRACES, traces("one"), **heads).status == 200
    location = f"grpc://127.0.0.1:{server.ready['flight']}"
    with RemoteSubscriber(location, "/default/traces", "a", token=ALL) as subscriber:
        assert ask(server, ALL, "POST", "/api/v1/flush").status == 200
        next(stream := subscriber.bundles())
        replace(tokens, f"{ALL} query=*\n{OTHER} *\n")
        with pytest.raises(pf.FlightUnauthenticatedError, match="withdrawn or changed"):
            next(stream)
