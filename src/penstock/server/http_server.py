"""The HTTP server under the applications: uvicorn, with patience that ends."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from penstock.server.config import Config


HEAD_BYTES: Final = 64 * 1024
_TOO_LONG: Final = "The head of the request is too long."


def patient(timeout_s: float) -> type[HttpToolsProtocol]:
    """A protocol that closes connections on which no request begins, or whose head does not end."""

    class PatientProtocol(HttpToolsProtocol):
        """Knows when its head must be complete, and how long it may be."""

        owner: uvicorn.Server | None = None
        _timer: asyncio.TimerHandle | None = None
        _begun = 0
        _in_head = False
        _head_bytes = 0
        _line_bytes = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()
            if self._is_stopping():
                transport.close()  # accepted too late to be told with the others

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._begun += 1
            self._in_head = True
            self._head_bytes = self._line_bytes = 0
            self._wait()

        def data_received(self, data: bytes) -> None:
            begun = self._begun
            super().data_received(data)
            # A line that does not end is no header yet; it is counted piece by piece.
            if self._in_head and self._begun == begun and not self.transport.is_closing():
                self._line_bytes += len(data)
                if self._line_bytes > HEAD_BYTES:
                    self.send_400_response(_TOO_LONG)
            if self._timer is None and self._is_idle():
                self._wait()  # whatever came, it stopped the other timer and began no request

        def on_header(self, name: bytes, value: bytes) -> None:
            """Of the head, or of what may follow a body in chunks."""
            self._head_bytes += len(name) + len(value)
            self._line_bytes = 0
            if self._head_bytes > HEAD_BYTES:
                raise ValueError(_TOO_LONG)
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._stop()
            self._in_head = False
            self._head_bytes = 0
            super().on_headers_complete()
            if self._is_stopping():
                self.cycle.keep_alive = False

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _is_stopping(self) -> bool:
            return self.owner is not None and self.owner.should_exit

        def _is_idle(self) -> bool:
            return not self._in_head and (self.cycle is None or self.cycle.response_complete)

        def _wait(self) -> None:
            self._stop()
            self._timer = self.loop.call_later(timeout_s, self._end)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _end(self) -> None:
            self.transport.abort()

    return PatientProtocol


def http_server(app: Any, config: Config) -> uvicorn.Server:
    """A server that neither logs nor handles signals; the caller brings the socket."""
    tls = config.tls
    protocol: Any = patient(config.limits.timeout)
    bounded = _Bounded(app, config.limits.connections)
    settings = uvicorn.Config(
        bounded,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(max(1, config.stop_deadline)),
        ssl_certfile=str(tls.certificate) if tls.certificate else None,
        ssl_keyfile=str(tls.key) if tls.key else None,
        ssl_ca_certs=str(tls.client_ca) if tls.client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls.client_ca else ssl.CERT_NONE,
    )
    server = _Server(settings)
    protocol.owner = bounded.server = server
    return server


class _Bounded:
    """Puts requests off while there are too many connections."""

    server: uvicorn.Server

    def __init__(self, app: Any, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        count = len(self.server.server_state.connections)
        if count <= self._most:
            await self._app(scope, receive, send)
            return
        from penstock.server.http import kind_of, refuse

        text = f"there are {count} connections; the most is {self._most}"
        kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        refusal = Refusal(Cause.UNAVAILABLE, text, retry_after_s=1.0)
        await refuse(send, refusal, kind_of(kind), close=True)


class _Server(uvicorn.Server):
    """Leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none."""
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
