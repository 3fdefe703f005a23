"""Who comes in: every port, with and without token, certificate and encryption."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from penstock.otel import Signal
from tests.server.certificates import OPENSSL, Pair, make_authority, make_certificate
from tests.server.running import PROTOBUF, Server, serving, until
from tests.server.samples import sample, traces

T = Signal.TRACES
SHOP, ALL, WRONG = "shop-token-123456", "all-token-1234567", "wrong-token-1234"
PORTS = ("grpc", "http", "web")
OK, UNKNOWN, FORBIDDEN, CLOSED = "ok", "who are you", "not there", "no connection"
Code = grpc.StatusCode
ports = pytest.mark.parametrize("port", PORTS)


def try_port(server: Server, port: str, token: str | None, namespace: str | None) -> str:
    """How a request on that port ends."""
    heads = {} if token is None else {"authorization": f"Bearer {token}"}
    heads |= {} if namespace is None else {"x-penstock-namespace": namespace}
    if port == "grpc":
        return _over_grpc(server, heads)
    try:
        if port == "web":
            return _word(server.ask("GET", "/api/v1/status", port="web", headers=heads).status)
        heads |= {"content-type": PROTOBUF}
        return _word(server.ask("POST", "/v1/traces", traces("a"), headers=heads).status)
    except (OSError, http.client.HTTPException):
        return CLOSED


def _word(status: int) -> str:
    return {200: OK, 401: UNKNOWN, 403: FORBIDDEN}.get(status, str(status))


def _over_grpc(server: Server, heads: dict[str, str]) -> str:
    words = {
        Code.UNAUTHENTICATED: UNKNOWN,
        Code.PERMISSION_DENIED: FORBIDDEN,
        Code.UNAVAILABLE: CLOSED,
    }
    with server.channel() as channel:
        try:
            channel.unary_unary(T.grpc_method)(traces("a"), metadata=tuple(heads.items()))
        except grpc.RpcError as error:
            return words.get(error.code(), str(error.code()))
    return OK


# --- tokens ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with two of them."""
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text(f"{SHOP} shop\n{ALL}\n")
    return path


@pytest.fixture(scope="module")
def guarded(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks for them."""
    config = {"auth": {"tokens_file": str(tokens)}, "logging": {"level": "debug"}}
    folder = tmp_path_factory.mktemp("guarded") / "data"
    with serving(folder, "--workers=2", config=config) as started:
        yield started


MATRIX = [
    (None, None, UNKNOWN),
    (None, "shop", UNKNOWN),
    ("", None, UNKNOWN),
    (WRONG, None, UNKNOWN),
    (WRONG, "shop", UNKNOWN),
    (SHOP, None, OK),
    (SHOP, "shop", OK),
    (SHOP, "default", FORBIDDEN),
    (SHOP, "other", FORBIDDEN),
    (ALL, None, OK),
    (ALL, "other", OK),
]


@ports
@pytest.mark.parametrize(("token", "namespace", "expected"), MATRIX)
def test_tokens_open_their_namespaces_on_every_port(
    guarded: Server, port: str, token: str | None, namespace: str | None, expected: str
) -> None:
    """And nothing else does."""
    assert try_port(guarded, port, token, namespace) == expected


@pytest.mark.parametrize(("port", "path"), [("http", "/v1/traces"), ("web", "/api/v1/query")])
def test_body_of_a_stranger_is_not_asked_for(guarded: Server, port: str, path: str) -> None:
    """`Expect: 100-continue` without a token: the answer comes at once, and then the end."""
    lines = [
        f"POST {path} HTTP/1.1",
        "host: localhost",
        "expect: 100-continue",
        "content-length: 5",
    ]
    with guarded.socket(port) as connection, connection.makefile("rb") as file:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        assert file.read().startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("sent", Signal)
def test_every_signal_asks_for_a_token(guarded: Server, sent: Signal) -> None:
    """Over HTTP and over gRPC."""
    assert guarded.post(sent, sample(sent, "a")).status == 401
    with pytest.raises(grpc.RpcError) as failed:
        guarded.export(sent, sample(sent, "a"))
    assert failed.value.code() is Code.UNAUTHENTICATED
    right = {"authorization": f"Bearer {ALL}"}
    assert guarded.post(sent, sample(sent, "a"), **right).status == 200
    guarded.export(sent, sample(sent, "a"), **right)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/metrics"), ("GET", "/api/v1/status"), ("POST", "/api/v1/flush"), ("GET", "/x")],
)
def test_web_port_shows_nothing_without_a_token(guarded: Server, method: str, path: str) -> None:
    """Not even what is there."""
    refused = guarded.ask(method, path, port="web")
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    heads = {"authorization": f"Bearer {ALL}"}
    assert guarded.ask(method, path, port="web", headers=heads).status in (200, 404)


def test_probes_need_no_token(guarded: Server) -> None:
    """They learn no more than well or not."""
    assert guarded.get("/healthz").json == {"healthy": True}
    assert guarded.get("/readyz").json == {"ready": True}


def test_token_in_other_places_opens_nothing(guarded: Server) -> None:
    """Neither in the query, nor in a cookie, nor as a password."""
    body, kind = traces("a"), {"content-type": PROTOBUF}
    assert guarded.ask("POST", f"/v1/traces?token={ALL}", body, headers=kind).status == 401
    for name, value in (("cookie", f"token={ALL}"), ("authorization", f"Basic {ALL}")):
        assert guarded.ask("POST", "/v1/traces", body, headers={**kind, name: value}).status == 401


def test_tokens_never_appear_in_the_log(guarded: Server) -> None:
    """Whatever is sent with them, at the most talkative level."""
    for token in (SHOP, ALL, WRONG):
        heads = {"authorization": f"Bearer {token}", "content-type": PROTOBUF}
        guarded.ask("POST", "/v1/traces", b"not a request", headers=heads)
        guarded.ask("GET", f"/{token}", port="web", headers=heads)
        with guarded.socket() as connection:
            connection.sendall(f"POST /v1/traces HTTP/1.1\r\nauthorization: {token}\r\n\0".encode())
            connection.recv(1000)
        try_port(guarded, "grpc", token, "a/b")
    for token in (SHOP, ALL, WRONG):
        assert token not in guarded.errors


def test_changed_tokens_hold_without_a_restart(guarded: Server, tokens: Path) -> None:
    """On every port and in every worker."""
    new, before = "new-token-1234567", tokens.read_text()
    replace(tokens, f"{before}{new} shop\n")
    for port in PORTS:
        until(lambda port=port: all(try_port(guarded, port, new, None) == OK for _ in range(8)))
    replace(tokens, before)
    for port in PORTS:
        until(
            lambda port=port: all(try_port(guarded, port, new, None) == UNKNOWN for _ in range(8))
        )
    assert new not in guarded.errors


def replace(path: Path, text: str) -> None:
    """As careful people do it."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


# --- certificates ------------------------------------------------------------------------------

needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="the openssl command is not installed")


class Certificates:
    """Two authorities, and what they have signed."""

    def __init__(self, folder: Path) -> None:
        self.ours = make_authority(folder, "ours")
        self.theirs = make_authority(folder, "theirs")
        self.server = make_certificate(folder, "server", self.ours)
        self.client = make_certificate(folder, "client", self.ours)
        self.stranger = make_certificate(folder, "stranger", self.theirs)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once; it takes a second."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server with a certificate, for everybody."""
    pair = certificates.server
    config = {"tls": {"certificate": str(pair.certificate), "key": str(pair.key)}}
    folder = tmp_path_factory.mktemp("encrypted") / "data"
    with serving(folder, config=config) as started:
        yield started


@pytest.fixture(scope="module")
def mutual(
    certificates: Certificates, tokens: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server that wants certificates of its clients, and tokens too, on all addresses."""
    pair, authority = certificates.server, certificates.ours.certificate
    config: dict[str, Any] = {
        "tls": {
            "certificate": str(pair.certificate),
            "key": str(pair.key),
            "client_ca": str(authority),
        },
        "auth": {"tokens_file": str(tokens)},
    }
    folder = tmp_path_factory.mktemp("mutual") / "data"
    with serving(folder, "--host=0.0.0.0", config=config) as started:
        yield started


def dress(server: Server, authority: Pair | None, client: Pair | None) -> None:
    """What the next clients trust, and what they show; no authority means no encryption."""
    server.tls = server.channel_credentials = None
    if authority is None:
        return
    server.tls = ssl.create_default_context(cafile=str(authority.certificate))
    if client is not None:
        server.tls.load_cert_chain(client.certificate, client.key)
    server.channel_credentials = grpc.ssl_channel_credentials(
        authority.certificate.read_bytes(),
        client.key.read_bytes() if client else None,
        client.certificate.read_bytes() if client else None,
    )


@needs_openssl
@ports
def test_encrypted_port_serves_who_trusts_it(
    encrypted: Server, certificates: Certificates, port: str
) -> None:
    """Nobody else: neither who does not encrypt, nor who trusts another authority."""
    dress(encrypted, certificates.ours, None)
    assert try_port(encrypted, port, None, None) == OK
    dress(encrypted, certificates.theirs, None)
    assert try_port(encrypted, port, None, None) == CLOSED
    dress(encrypted, None, None)
    assert try_port(encrypted, port, None, None) == CLOSED


@needs_openssl
@ports
@pytest.mark.parametrize(
    ("client", "token", "expected"),
    [
        (None, ALL, CLOSED),
        ("stranger", ALL, CLOSED),
        ("client", None, UNKNOWN),
        ("client", WRONG, UNKNOWN),
        ("client", ALL, OK),
    ],
)
def test_mutual_port_serves_who_has_a_certificate_and_a_token(
    mutual: Server,
    certificates: Certificates,
    port: str,
    client: str | None,
    token: str | None,
    expected: str,
) -> None:
    """One of them alone is not enough."""
    shown = None if client is None else getattr(certificates, client)
    dress(mutual, certificates.ours, shown)
    assert try_port(mutual, port, token, None) == expected
    dress(mutual, None, None)
    assert try_port(mutual, port, token, None) == CLOSED


@needs_openssl
def test_probe_of_a_mutual_port_needs_a_certificate(
    mutual: Server, certificates: Certificates
) -> None:
    """But no token."""
    dress(mutual, certificates.ours, certificates.client)
    assert mutual.get("/healthz").status == 200
    dress(mutual, certificates.ours, None)
    with pytest.raises((OSError, http.client.HTTPException)):
        mutual.get("/healthz")


# --- beyond loopback ---------------------------------------------------------------------------


def test_listening_beyond_loopback_unprotected_is_refused(tmp_path: Path) -> None:
    """In one sentence that says how to mean it; nothing is made."""
    server = Server.begin(tmp_path / "data", "--host=0.0.0.0")
    assert server.wait() == 1
    assert "listen.unprotected" in server.errors
    assert server.errors.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_listening_beyond_loopback_may_be_meant(tmp_path: Path) -> None:
    """Then all ports can be reached."""
    config = {"listen": {"host": "0.0.0.0", "unprotected": True}}  # noqa: S104
    with serving(tmp_path / "data", config=config) as server:
        for port in PORTS:
            assert try_port(server, port, None, None) == OK
            with socket.create_connection((outside(), server.ready[port]), 10):
                pass


def outside() -> str:
    """An address of the machine that is not loopback; loopback where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def test_tokens_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    """A server without it would let everybody in."""
    path = os.fspath(tmp_path / "none")
    server = Server.begin(tmp_path / "data", config={"auth": {"tokens_file": path}})
    assert server.wait() == 1
    assert path in server.errors
    assert server.errors.count("\n") == 1
