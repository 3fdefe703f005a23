"""Certificates that are replaced while a server runs."""

from __future__ import annotations

import http.client
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow.flight as pf
import pytest

from penstock.otel import Signal
from tests.server.certificates import OPENSSL, Pair, make_authority, make_certificate
from tests.server.running import Server, serving, until
from tests.server.samples import traces

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="the openssl command is not installed")
PORTS = ("grpc", "http", "web", "flight")


class Side:
    """An authority, and what it has signed."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        self.authority = make_authority(folder, name)
        self.server = make_certificate(folder, "server", self.authority)
        self.client = make_certificate(folder, "client", self.authority)


class Files:
    """Those that the server is told of."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "server.pem", folder / "server.key"
        self.client_ca = folder / "clients.pem"

    def hold(self, side: Side, *names: str) -> None:
        """By renames, as those who renew certificates do it."""
        sources = {
            "certificate": side.server.certificate,
            "key": side.server.key,
            "client_ca": side.authority.certificate,
        }
        for name in names or tuple(sources):
            target: Path = getattr(self, name)
            other = target.with_suffix(".new")
            shutil.copyfile(sources[name], other)
            other.replace(target)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Side, Side]:
    """The old one and the new one."""
    folder = tmp_path_factory.mktemp("sides")
    return Side(folder / "old", "old"), Side(folder / "new", "new")


@pytest.fixture
def files(tmp_path: Path, sides: tuple[Side, Side]) -> Files:
    """They hold the old ones at first."""
    found = Files(tmp_path)
    found.hold(sides[0])
    return found


@pytest.fixture
def server(tmp_path: Path, files: Files) -> Iterator[Server]:
    """One that wants certificates of its clients."""
    tls = {name: str(path) for name, path in vars(files).items()}
    with serving(tmp_path / "data", config={"tls": tls}) as started:
        yield started


def comes_in(server: Server, port: str, trusted: Pair, shown: Pair) -> bool:
    """Whether somebody who trusts one authority and shows that certificate is answered."""
    roots = trusted.certificate.read_bytes()
    pair = shown.key.read_bytes(), shown.certificate.read_bytes()
    if port == "flight":
        return _over_flight(server, roots, pair)
    server.tls = ssl.create_default_context(cafile=str(trusted.certificate))
    server.tls.load_cert_chain(shown.certificate, shown.key)
    server.channel_credentials = grpc.ssl_channel_credentials(roots, *pair)
    try:
        if port == "grpc":
            server.export(Signal.TRACES, traces("a"))
        else:
            path = "/healthz" if port == "web" else "/v1/traces"
            server.ask("GET", path, port=port)
    except (OSError, http.client.HTTPException, grpc.RpcError):
        return False
    return True


def _over_flight(server: Server, roots: bytes, pair: tuple[bytes, bytes]) -> bool:
    given: dict[str, Any] = {
        "tls_root_certs": roots,
        "private_key": pair[0],
        "cert_chain": pair[1],
        "generic_options": [("grpc.use_local_subchannel_pool", 1)],
    }
    with pf.FlightClient(f"grpc+tls://localhost:{server.ready['flight']}", **given) as client:
        try:
            list(client.list_actions(pf.FlightCallOptions(timeout=30)))
        except pf.FlightError:
            return False
    return True


def test_replaced_certificates_hold_for_new_connections(
    server: Server, files: Files, sides: tuple[Side, Side]
) -> None:
    """The server's own, and those of the clients that may come in; on every port."""
    old, new = sides
    for port in PORTS:
        assert comes_in(server, port, old.authority, old.client), port
        assert not comes_in(server, port, old.authority, new.client), port
    files.hold(new)
    for port in PORTS:
        until(lambda port=port: comes_in(server, port, new.authority, new.client))
        assert not comes_in(server, port, new.authority, old.client), port
        assert not comes_in(server, port, old.authority, old.client), port


def test_files_that_do_not_fit_change_nothing(
    server: Server, files: Files, sides: tuple[Side, Side]
) -> None:
    """Health is red meanwhile; with the key that belongs to it the new certificate holds."""
    old, new = sides
    assert comes_in(server, "web", old.authority, old.client)
    files.hold(new, "certificate")
    health = until(lambda: (found := server.get("/healthz")).status == 503 and found)
    assert "certificate" in health.json["problems"][0]
    for port in PORTS:
        assert comes_in(server, port, old.authority, old.client), port
    files.hold(new, "key")
    for port in PORTS:
        until(lambda port=port: comes_in(server, port, new.authority, old.client))
    until(lambda: server.get("/healthz").status == 200)
