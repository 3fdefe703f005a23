"""The HTTP server under the applications: uvicorn, with our protocol and without signals."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from penstock.server.http.answers import refuse
from penstock.server.http.bodies import KEEPING_S, Body
from penstock.server.http.head import holds_body_back, kind_in
from penstock.server.http.protocol import Bound, http_protocol
from penstock.server.http.sites import HEADERS, OwnSites
from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.certificates import Certificates
    from penstock.server.configuration.config import Config, Limits


_TO_BE_TOLD: Final = 16
"""Connections over the bound that hear of it when they ask; beyond, they are closed unheard."""


def http_server(
    app: Any, config: Config, certificates: Certificates | None, *, answers_half_closed: bool
) -> uvicorn.Server:
    """A server that neither logs nor handles signals; the caller brings the socket."""
    protocol = http_protocol(config.limits.timeout, answers_half_closed=answers_half_closed)
    settings = uvicorn.Config(
        OwnSites(app, config),
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=list(HEADERS),
        timeout_keep_alive=max(1, int(config.limits.idle)),
        timeout_graceful_shutdown=int(max(1, config.stop_deadline)),
        ssl_context_factory=None if certificates is None else lambda *_: certificates.context(),
    )
    server = _Server(settings)
    protocol.owner = server
    protocol.bound = Bound(config.limits.connections, _TO_BE_TOLD, _Refusing(config.limits))
    return server


class _Refusing:
    """The application of those who connected when there were too many already."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        text = f"there are more than {self._limits.connections} connections"
        refusal = Refusal(Cause.UNAVAILABLE, text, retry_after_s=1.0)
        body = Body(receive, held_back=holds_body_back(scope))
        limits = replace(self._limits, timeout=KEEPING_S)  # it is one connection too many
        await refuse(send, refusal, kind_in(scope), lambda: body.linger(refusal, limits))


class _Server(uvicorn.Server):
    """Leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """A socket that other workers may bind too; not listening yet."""
    bound = _new_socket(host)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound


def reserve(host: str, port: int) -> socket.socket:
    """The same for the first of them; OSError where somebody else, a server too, has the port."""
    try:
        with _new_socket(host) as alone:
            alone.bind((host, port))  # it does not share: another server's would let it otherwise
        return bind(host, port)
    except OSError as error:
        why = error.strerror or str(error)
        raise OSError(error.errno, f"port {port} of {host} cannot be used: {why}") from None


def _new_socket(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, so that asyncio knows it for TCP and lets short answers go without delay.
    new = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return new
