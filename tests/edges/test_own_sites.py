"""A server without tokens answers by its own names, and no page of another site."""

from __future__ import annotations

import http.client
import json
import socket
from typing import TYPE_CHECKING

import pytest

from penstock.otel import Signal
from tests.server.running import PROTOBUF, Answer, Server, answer_of, serving
from tests.server.samples import traces

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = "a-token-of-everything"
PORTS = ("web", "http")
QUESTION = json.dumps({"sql": "SELECT 1"}).encode()
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "content-security-policy": "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Without tokens, with a name for other containers."""
    config = {"listen": {"hosts": ["penstock", "Telemetry.internal:4318"]}}
    with serving(tmp_path_factory.mktemp("sites") / "data", config=config) as started:
        yield started


def ask(server: Server, port: str, host: str | None, **headers: str) -> Answer:
    """A question of the web port, or a request of the other, by a name; None: by none."""
    path, body = ("/api/v1/query", QUESTION) if port == "web" else ("/v1/traces", traces("a"))
    lines = [f"POST {path} HTTP/1.{0 if host is None else 1}", f"content-length: {len(body)}"]
    lines += [] if host is None else [f"host: {host}"]
    lines += [f"content-type: {PROTOBUF}"] if port == "http" else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    with server.socket(port) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return read_answer(connection)


def read_answer(connection: socket.socket) -> Answer:
    """What comes on a bare connection."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return answer_of(response)


@pytest.mark.parametrize("port", PORTS)
def test_server_answers_by_its_own_names(server: Server, port: str) -> None:
    """Of loopback and of its configuration, with any port and in any case; or by none at all."""
    for host in (
        *("localhost", "LOCALHOST:4320", "localhost.", "my.localhost", "127.0.0.1:1", "127.1.2.3"),
        *("[::1]:4318", "[0:0:0:0:0:0:0:1]", "penstock", "PENSTOCK:4318", "telemetry.internal"),
    ):
        assert ask(server, port, host).status == 200, host
    assert ask(server, port, None).status == 200


@pytest.mark.parametrize("port", PORTS)
def test_other_names_are_not_answered(server: Server, port: str) -> None:
    """What a page could have made to lead here, with an origin that fits it; nothing is stored."""
    before = server.metric("penstock_log_messages_total")
    for host in (
        *("evil.example", "evil.example:4320", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("notlocalhost", "penstock.evil.example", "0.0.0.0", "192.168.7.7:4318", "[::]", "", "*"),  # noqa: S104
        *("localhost@evil.example", "evil.example:localhost", "[::1].evil.example:1:2"),
    ):
        answer = ask(server, port, host, origin=f"http://{host}")
        assert answer.status in (400, 421), host
        if host == "evil.example" and port == "web":
            assert "listen.hosts" in answer.json["message"]
    assert server.metric("penstock_log_messages_total") == before
    assert "asked for by the name evil.example and not answered" in server.errors


@pytest.mark.parametrize("port", PORTS)
def test_pages_of_other_sites_are_not_answered(server: Server, port: str) -> None:
    """Whether the browser says from where, or how near; its own pages and programs are."""
    own = f"127.0.0.1:{server.ready[port]}"
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {
            "sec_fetch_site": "cross-site",
            "sec_fetch_mode": "navigate",
            "sec_fetch_dest": "document",
        },
        {"sec_fetch_site": "same-origin", "origin": "http://evil.example"},
    ):
        assert ask(server, port, own, **headers).status == 403, headers
    for headers in (
        {},
        {"origin": f"http://{own}"},
        {"origin": f"http://{own}", "sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
    ):
        assert ask(server, port, own, **headers).status == 200, headers


def test_link_of_another_site_can_be_followed(server: Server) -> None:
    """It opens a page and sends nothing; in a frame, or as an image, it is not answered."""
    heads = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    for dest, status in (("document", 200), ("iframe", 403), ("image", 403)):
        found = server.ask(
            "GET", "/api/v1/openapi.json", port="web", headers={**heads, "sec-fetch-dest": dest}
        )
        assert found.status == status, dest


def test_every_answer_has_the_usual_headers(server: Server) -> None:
    """Of both ports, refusals and what is no HTTP too."""
    answers = [
        server.get("/healthz"),
        server.get("/nothing"),
        server.post(Signal.TRACES, traces("a")),
        server.post(Signal.TRACES, b"\xff", "text/plain"),
        ask(server, "web", "evil.example"),
        ask(server, "http", "evil.example"),
    ]
    for port in PORTS:
        with server.socket(port) as bare:
            bare.sendall(b"no HTTP\r\n\r\n")
            answers.append(read_answer(bare))
    for answer in answers:
        assert HEADERS.items() <= answer.headers.items(), answer


def test_tokens_do_what_names_would(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With them any name is answered: no browser sends one by itself."""
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "tokens").write_text(f"{ALL} *\n")
    (folder / "tokens").chmod(0o600)
    config = {"auth": {"tokens_file": str(folder / "tokens")}}
    with serving(folder / "data", config=config) as server:
        for port in PORTS:
            heads = {"authorization": f"Bearer {ALL}", "sec_fetch_site": "cross-site"}
            assert ask(server, port, "anything.example", **heads).status == 200
            assert ask(server, port, "anything.example").status == 401
