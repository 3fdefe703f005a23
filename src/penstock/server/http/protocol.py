"""HTTP/1.1 from the wire: uvicorn's protocol, strict about where a request begins and ends.

What uvicorn and its parser do otherwise, and what it would cost:

- A head with `Upgrade` ends the request for the parser, and its body is gone. Nobody here speaks
  another protocol, so that the head is read again without the header.
- Trailers are taken for headers: they could name another namespace than the head does.
- What cannot be read is answered at once, though requests before it wait for their answers, which
  would then be taken for theirs.
- A client that has sent all and closes its side is not answered.
- All requests of one read are taken up before anybody else has a turn: a megabyte of small ones is
  ten thousand. One is taken up here when the one before it is answered; what is behind it waits
  unparsed, and nothing more is read until it has had its turn.
- What comes after an answer that ends the connection is parsed all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from penstock.server.http.sites import HEADERS

if TYPE_CHECKING:
    import asyncio

    import uvicorn


HEAD_BYTES: Final = 64 * 1024
HEAD_FIELDS: Final = 100
"""And as many trailers."""
CHUNKS: Final = 1000
CHUNK_BYTES: Final = 64
"""What chunks have on the average, where a body has more than `CHUNKS` of them."""
_AT_ONCE_BYTES: Final = 4096
"""Of a body in chunks: how far its end, and what may be behind it, is looked for at once."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"
_VERSIONS: Final = ("1.0", "1.1")
_NOT_HTTP: Final = "Invalid HTTP request received."
_TOO_LONG: Final = "The head of the request is too long."
_TOO_MANY_FIELDS: Final = f"A request has at most {HEAD_FIELDS} header fields."
_TOO_SMALL_CHUNKS: Final = f"Chunks of less than {CHUNK_BYTES} bytes, and too many of them."
_OTHER_VERSION: Final = "This port speaks HTTP/1.1; OTLP over gRPC has a port of its own."
_HTTP_2: Final = b"PRI * HTTP/2.0"


_ALWAYS: Final = "".join(f"{name}: {value}\r\n" for name, value in HEADERS).encode()


class Unreadable(Exception):
    """Raised within the parser: the request, and whatever follows it, cannot be read."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Bound(NamedTuple):
    """How many may be connected. Who came in before goes on; who comes after is turned away."""

    most: int
    to_be_told: int
    """Beyond: they hear of it when they ask. More are closed as they come, since each has a
    descriptor, whether it ever asks or not."""
    refusing: Any
    """The application that tells them."""


class _Flow(FlowControl):
    """Reading goes on when the application asks for more, unless something waits unparsed."""

    held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class HttpProtocol(HttpToolsProtocol):
    """One connection. Answers leave in the order of their requests, then what ends it."""

    owner: uvicorn.Server | None = None
    timeout_s: float
    answers_half_closed: bool
    bound: Bound | None = None

    _timer: asyncio.TimerHandle | None = None
    _begun = 0
    _in_head = False
    _head_bytes = 0
    _line_bytes = 0
    _fields = 0
    _body_left = 0
    """Of the length that was announced."""
    _body_bytes = 0
    _chunks = 0
    _is_chunked = False
    _waiting = b""
    """What came behind a request that has not been answered: one read, since reading pauses."""
    _has_ended = False
    """The client closed its side behind what waits."""
    _unanswered = 0
    """Requests whose heads were read, and which have not been answered."""
    _last_words: bytes | None = None
    """What is sent when all of them are; nothing is read any more."""

    # --- the connection ------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._wait()
        if self._is_stopping():
            transport.close()  # accepted too late to be told with the others
        elif self.bound is not None and len(self.connections) > self.bound.most:
            self.app = self.bound.refusing
            if len(self.connections) > self.bound.most + self.bound.to_be_told:
                transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._last_words is not None:
            return
        self._unset_keepalive_if_required()
        if self._is_leaving():
            self._drop(data)
            return
        self._waiting = self._waiting + data if self._waiting else data
        self._go_on()

    def _go_on(self) -> None:
        """Parses what waits, as far as the end of a request that is not answered yet."""
        data, at = self._waiting, 0
        while at < len(data) and not self._is_occupied():
            size = self._next_piece(data, at)
            if not self._take(memoryview(data)[at : at + size]):
                self._waiting = b""
                return
            at += size
        self._waiting = data[at:]
        self._hold_back()
        if self._timer is None and self._is_idle():
            self._wait()  # whatever came, it stopped the other timer and began no request

    def _hold_back(self) -> None:
        # Invariant: while something waits nothing is read, so that it is never more than one read.
        flow: Any = self.flow
        if self._waiting:
            flow.held = True
            flow.pause_reading()
        elif flow.held:
            flow.held = False
            if self.cycle is None or len(self.cycle.body) <= HIGH_WATER_LIMIT:
                flow.resume_reading()

    def _is_occupied(self) -> bool:
        """Whether a whole request is being answered."""
        return self._unanswered > 0 and not self.cycle.more_body

    def _next_piece(self, data: bytes, at: int) -> int:
        """How many bytes belong to one request for sure, or are few."""
        if self._body_left:
            return self._body_left
        if self._is_chunked:
            return _AT_ONCE_BYTES
        end = data.find(_END_OF_HEAD, at)
        return len(data) - at if end < 0 else end + len(_END_OF_HEAD) - at

    def _take(self, data: memoryview) -> bool:
        """Parses it; False where nothing is read any more."""
        begun = self._begun
        try:
            self._feed(data)
        except Unreadable as why:
            self._end(_answer(why.status, str(why)))
            return False
        # A line that does not end is no header yet; it is counted piece by piece.
        if self._in_head and self._begun == begun:
            self._line_bytes += len(data)
            if self._line_bytes > HEAD_BYTES:
                self._end(_answer(431, _TOO_LONG))
                return False
        return True

    def _is_leaving(self) -> bool:
        """Whether the answer has left, and ends the connection, before all of the body came."""
        cycle = self.cycle
        return cycle is not None and cycle.response_started and not cycle.keep_alive

    def _drop(self, data: bytes) -> None:
        """Hands it to whoever throws it away, unparsed: it only has to be out of the socket.

        Where it ends is known by its length; by the last chunk, if nothing follows it.
        """
        cycle = self.cycle
        if cycle.response_complete or not cycle.more_body:
            return
        cycle.body += data
        self._body_left -= min(self._body_left, len(data))
        ended = data.endswith(_LAST_CHUNK) if self._is_chunked else not self._body_left
        cycle.more_body = not ended
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio lets it
        """True keeps the connection for the answers to what was whole when the client ended."""
        if (
            not self.answers_half_closed or self.scheme == "https"
        ):  # TLS has no half of a connection
            return False
        if self._waiting and not self.transport.is_closing():
            self._has_ended = True  # what waits came before
            return True
        self._end(b"")
        return self._unanswered > 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    # --- what the parser says ------------------------------------------------------------------

    def _feed(self, data: memoryview) -> None:
        """Unreadable says what is wrong with it."""
        if not self._begun and bytes(data[: len(_HTTP_2)]) == _HTTP_2:
            raise Unreadable(505, _OTHER_VERSION)
        left = data
        try:
            while True:
                try:
                    self.parser.feed_data(left)
                    return
                except httptools.HttpParserUpgrade as stopped:
                    left = left[stopped.args[0] :]
                    self._read_again()
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, Unreadable):
                raise error.__context__ from None
            raise Unreadable(400, _NOT_HTTP) from None

    def _read_again(self) -> None:
        """The head without `Upgrade`, by a new parser, which then goes on with the body."""
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun += 1
        self._in_head = True
        self._head_bytes = self._line_bytes = self._fields = 0
        self._wait()

    def on_url(self, url: bytes) -> None:
        self._count(len(url), 414)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of the head, or a trailer, which nobody here asks for."""
        self._count(len(name) + len(value), 431)
        self._fields += 1
        if self._fields > HEAD_FIELDS:
            raise Unreadable(431, _TOO_MANY_FIELDS)
        self._line_bytes = 0
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            return  # it is read again
        self._check_head()
        self._stop()
        self._in_head = False
        self._head_bytes = self._fields = 0
        super().on_headers_complete()
        self._unanswered += 1
        if self._is_stopping():
            self.cycle.keep_alive = False

    def on_chunk_header(self) -> None:
        """Each costs as much as a large one: a body of small ones is given up."""
        self._chunks += 1
        if self._chunks > CHUNKS and self._chunks * CHUNK_BYTES > self._body_bytes:
            raise Unreadable(400, _TOO_SMALL_CHUNKS)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if not self._is_chunked:
            self._body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        # Invariant: the application hears of the end of a body only where the parser has read as
        # many bytes as were announced, or the last chunk.
        if not self.parser.should_upgrade():
            super().on_message_complete()
            self.cycle.more_body = False  # where the answer has left before it, too
            self._is_chunked = False

    def _count(self, size: int, status: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES:
            raise Unreadable(status, _TOO_LONG)

    def _check_head(self) -> None:
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            raise Unreadable(505, _OTHER_VERSION)
        if self.parser.get_method() == b"CONNECT":
            raise Unreadable(501, "This is no proxy.")
        is_old, hosts, codings = version == "1.0", 0, []
        self._body_left = self._body_bytes = self._chunks = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"content-length":
                self._body_left = int(value)
            elif name == b"transfer-encoding":
                codings.append(value.strip().lower())
            elif name == b"expect" and value.lower() != b"100-continue" and not is_old:
                raise Unreadable(417, "Nothing but 100-continue can be expected.")
        if hosts > 1 or (hosts == 0 and not is_old):
            raise Unreadable(400, "A request names one host.")
        if codings and (codings != [b"chunked"] or is_old):
            raise Unreadable(501, "The only transfer coding is chunked, and of HTTP/1.1.")
        self._is_chunked = bool(codings)
        if is_old:
            self.expect_100_continue = False

    # --- the end -------------------------------------------------------------------------------

    def _end(self, last_words: bytes) -> None:
        """Reads no more. What was whole is answered first; what was not is left by its reader."""
        self._stop()
        self._last_words = last_words
        cycle = self.cycle
        if cycle is not None and cycle.more_body:
            if cycle.response_started:
                self._last_words = b""  # it has its answer
            if not cycle.response_complete:
                self._leave(cycle)
        self._say_last_words()

    def _leave(self, cycle: Any) -> None:
        self._unanswered -= 1
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()  # its turn had not come
        cycle.disconnected = True
        cycle.message_event.set()

    def on_response_complete(self) -> None:
        self._unanswered -= 1
        super().on_response_complete()
        self._say_last_words()
        # Not at once: others have had their turn when the next request of this client has its own.
        self.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        if self._last_words is not None or self.transport.is_closing():
            return
        if self._waiting:
            self._unset_keepalive_if_required()
            self._go_on()
        if self._has_ended and not self._waiting:
            self._end(b"")

    def _say_last_words(self) -> None:
        if self._last_words is None or self._unanswered or self.transport.is_closing():
            return
        if self._last_words:
            self.transport.write(self._last_words)
        self.transport.close()

    def _is_stopping(self) -> bool:
        return self.owner is not None and self.owner.should_exit

    # --- patience ------------------------------------------------------------------------------

    def _is_idle(self) -> bool:
        return not self._in_head and not self._unanswered

    def _wait(self) -> None:
        self._stop()
        self._timer = self.loop.call_later(self.timeout_s, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self.transport.abort()


def http_protocol(timeout_s: float, *, answers_half_closed: bool) -> type[HttpProtocol]:
    """Closes connections on which no request begins, or whose head does not end, in time.

    `answers_half_closed`: a client that closes its side after its requests is answered. Without
    it, that client has gone, and what is being done for it is stopped.
    """
    bound = {"timeout_s": timeout_s, "answers_half_closed": answers_half_closed}
    return type("BoundHttpProtocol", (HttpProtocol,), bound)


def _answer(status: int, text: str) -> bytes:
    body = text.encode("ascii")
    head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(body)
    return STATUS_LINE[status] + head + _ALWAYS + b"connection: close\r\n\r\n" + body
