"""A server of OTLP/HTTP that remembers what it got and answers as it is told."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

from penstock.otel.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = {signal.http_path: signal for signal in Signal}


class Got(NamedTuple):
    """One request."""

    signal: Signal
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    """One answer."""

    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    body: bytes = b""


class Receiver:
    """Gives the replies in their order, then says yes."""

    def __init__(self, replies: list[Reply], always: Reply) -> None:
        self.got: list[Got] = []
        self.first = threading.Event()
        self._replies = iter(replies)
        self._always = always
        self._lock = threading.Lock()
        self.url = ""

    def take(self, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """Remembers a request."""
        with self._lock:
            self.got.append(Got(SIGNALS[path], headers, body))
            self.first.set()
            return next(self._replies, self._always)

    def bodies(self, signal: Signal) -> list[bytes]:
        """What came of one kind."""
        return [got.body for got in self.got if got.signal is signal]


@contextlib.contextmanager
def receiver(*replies: Reply, always: Reply | None = None) -> Iterator[Receiver]:
    """Runs until the context ends."""
    found = Receiver(list(replies), always or Reply())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = found.take(self.path, headers, body)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            """Not on the test's stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
