"""A server in front of another that answers some requests as a script says."""

from __future__ import annotations

import enum
import http.client
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Fault(enum.Enum):
    """What becomes of one request; the number is what is answered instead of asking the server."""

    CONFLICT = 409
    PRECONDITION = 412
    SLOW_DOWN = 429
    INTERNAL = 500
    UNAVAILABLE = 503
    CUT = "the connection is cut before anything is done"
    LOST = "it is done, and the connection is cut before it is answered"


class Asked(NamedTuple):
    """A request that came."""

    method: str
    path: str
    is_conditional: bool


class Proxy:
    """Hands everything on to `target`, save what `plan` names; `asked` says what came."""

    def __init__(self, target: str) -> None:
        self.plan: Callable[[Asked], Fault | None] = lambda _: None
        self.asked: list[Asked] = []
        self._target = urlsplit(target).netloc
        self._lock = threading.Lock()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def after(self, count: int, fault: Fault) -> None:
        """The request behind the next `count` fares so; those behind it are let through."""
        left = iter([*([None] * count), fault])
        self.asked.clear()
        self.plan = lambda _: next(left, None)

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        """For the length of a block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    # --- one request ---------------------------------------------------------------------------

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

            def do_PUT(self) -> None:
                proxy.handle(self)

            do_GET = do_HEAD = do_POST = do_DELETE = do_PUT  # noqa: N815 - names of the base class

        return Handler

    def handle(self, request: http.server.BaseHTTPRequestHandler) -> None:
        """Reads it whole, then lets the plan decide."""
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        conditional = any(name in request.headers for name in ("if-match", "if-none-match"))
        asked = Asked(request.command, request.path, conditional)
        with self._lock:
            self.asked.append(asked)
            fault = self.plan(asked)
        if fault is None:
            self._answer(request, *self._forward(request, body))
        elif isinstance(fault.value, int):
            text = f"<Error><Code>Injected</Code><Message>{fault.name}</Message></Error>".encode()
            self._answer(request, fault.value, {}, text)
        else:
            if fault is Fault.LOST:
                self._forward(request, body)
            request.close_connection = True

    def _forward(
        self, request: http.server.BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._target, timeout=60)
        try:
            headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
            connection.request(request.command, request.path, body, headers)
            answer = connection.getresponse()
            given = dict(answer.getheaders())
            data = answer.read()
            return answer.status, given, data
        finally:
            connection.close()

    def _answer(
        self,
        request: http.server.BaseHTTPRequestHandler,
        status: int,
        headers: dict[str, str],
        body: bytes,
    ) -> None:
        request.send_response(status)
        for name, value in headers.items():
            if name.lower() not in _HOP_BY_HOP:
                request.send_header(name, value)
        length = {k.lower(): v for k, v in headers.items()}.get("content-length")
        is_head = request.command == "HEAD"
        request.send_header("content-length", length if is_head and length else str(len(body)))
        request.end_headers()
        if not is_head:
            request.wfile.write(body)
