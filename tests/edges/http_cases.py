"""What a client may do over HTTP/1.1, what it is answered, and what is stored of it.

The table in `docs/http.md` is this one.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.server import http2
from tests.server.running import JSON, PROTOBUF
from tests.server.samples import ids, traces

if TYPE_CHECKING:
    from collections.abc import Callable

EXPECT, FIVE = "expect: 100-continue", "content-length: 5"
KEPT, CLOSED, HALF_CLOSED, LEFT = "kept", "closed", "half-closed", "left"


@dataclass(frozen=True)
class Case:
    """One conversation. The spans of its requests carry its title, and a number."""

    title: str
    send: Callable[[str], bytes]
    answers: tuple[int, ...]
    stored: int
    end: str = KEPT
    """KEPT, CLOSED: what the server does with the connection. HALF_CLOSED, LEFT: what the client
    does when it has sent everything; the server closes then."""
    bytewise: bool = False

    @property
    def row(self) -> tuple[str, str, str]:
        """As the page shows it."""
        answers = ", ".join(map(str, self.answers)) or "none"
        closes = self.end == CLOSED
        return self.title, answers + (", closed" if closes else ""), str(self.stored)


def head(
    *headers: str, line: str = "POST /v1/traces HTTP/1.1", host: str = "host: localhost"
) -> bytes:
    """Of a request for the OTLP port."""
    lines = [line, host, f"content-type: {PROTOBUF}", *headers]
    return "\r\n".join([*filter(None, lines), "", ""]).encode("latin-1")


def post(body: bytes, *headers: str, **more: str) -> bytes:
    """A request that is whole."""
    return head(*headers, f"content-length: {len(body)}", **more) + body


def chunked(body: bytes, *headers: str, size: int = 7, end: bytes = b"0\r\n\r\n") -> bytes:
    """The same in chunks."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head(*headers, "transfer-encoding: chunked") + chunks + end


def several(title: str, count: int, *headers: str) -> bytes:
    """Requests in one piece; the first has these headers."""
    first = post(traces(f"{title} #0"), *headers)
    return first + b"".join(post(traces(f"{title} #{n}")) for n in range(1, count))


def as_json(title: str, *headers: str) -> bytes:
    """One span as OTLP/JSON."""
    trace_id, span_id = (each.hex() for each in ids(title))
    span = {"traceId": trace_id, "spanId": span_id, "name": title}
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    return post(json.dumps(document).encode(), *headers).replace(PROTOBUF.encode(), JSON.encode())


def upgrade(name: str, connection: str = "Upgrade") -> tuple[str, str]:
    """The two headers that ask for another protocol."""
    return f"connection: {connection}", f"upgrade: {name}"


H2C = (
    *upgrade("h2c", "Upgrade, HTTP2-Settings"),
    "http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
)
"""As the HTTP client of Java's class library sends them."""

UPGRADES = [
    Case("`Upgrade: h2c`", lambda t: post(traces(t), *H2C), (200,), 1),
    Case("`Upgrade: h2c`, byte by byte", lambda t: post(traces(t), *H2C), (200,), 1, bytewise=True),
    Case("`Upgrade: h2c`, in chunks", lambda t: chunked(traces(t), *H2C), (200,), 1),
    Case(
        "`Upgrade: h2c`, gzip",
        lambda t: post(gzip.compress(traces(t)), *H2C, "content-encoding: gzip"),
        (200,),
        1,
    ),
    Case("`Upgrade: h2c`, JSON", lambda t: as_json(t, *H2C), (200,), 1),
    Case("`Upgrade: websocket`", lambda t: post(traces(t), *upgrade("websocket")), (200,), 1),
    Case(
        "`Upgrade` to a protocol nobody knows",
        lambda t: post(traces(t), *upgrade("x/1")),
        (200,),
        1,
    ),
    Case(
        "`Upgrade` without `Connection: upgrade`",
        lambda t: post(traces(t), "upgrade: h2c"),
        (200,),
        1,
    ),
    Case(
        "`Connection: close, upgrade`",
        lambda t: post(traces(t), *upgrade("h2c", "close, upgrade")),
        (200,),
        1,
        CLOSED,
    ),
    Case(
        "`Upgrade` of HTTP/1.0",
        lambda t: post(traces(t), *H2C, line="POST /v1/traces HTTP/1.0"),
        (200,),
        1,
        CLOSED,
    ),
    Case("`Upgrade` on the first of 20 at once", lambda t: several(t, 20, *H2C), (200,) * 20, 20),
    Case(
        "`Upgrade` on each of 20 at once",
        lambda t: b"".join(post(traces(f"{t} #{n}"), *H2C) for n in range(20)),
        (200,) * 20,
        20,
    ),
    Case(
        "`Upgrade`, and the client ends before the body does",
        lambda t: post(traces(t), *H2C)[:-3],
        (),
        0,
        HALF_CLOSED,
    ),
    Case("`Upgrade` with `GET`", lambda _: head(*H2C, line="GET /v1/traces HTTP/1.1"), (405,), 0),
    Case("`CONNECT`", lambda _: head(line="CONNECT x:1 HTTP/1.1"), (501,), 0, CLOSED),
    Case(
        "HTTP/2 from the start", lambda _: http2.PREFACE + http2.frame(4, 0, 0), (505,), 0, CLOSED
    ),
]

LENGTHS = [
    Case("`Content-Length`", lambda t: post(traces(t)), (200,), 1),
    Case("byte by byte", lambda t: post(traces(t)), (200,), 1, bytewise=True),
    Case("`Content-Length: 0`: an empty request", lambda _: post(b""), (200,), 0),
    Case(
        "`Content-Length: 0`, JSON",
        lambda t: as_json(t).partition(b"\r\n\r\n")[0].rpartition(b" ")[0] + b" 0\r\n\r\n",
        (400,),
        0,
    ),
    Case("`Content-Length: 0`, gzip", lambda _: post(b"", "content-encoding: gzip"), (400,), 0),
    Case("no length and no body", lambda _: head(), (411,), 0),
    Case("no length, and a body", lambda t: head() + traces(t), (411, 400), 0, CLOSED),
    Case(
        "a length under that of the body",
        lambda t: head("content-length: 2") + traces(t),
        (400, 400),
        0,
        CLOSED,
    ),
    Case("two lengths", lambda t: post(traces(t), "content-length: 2"), (400,), 0, CLOSED),
    Case(
        "the same length twice",
        lambda t: post(traces(t), f"content-length: {len(traces(t))}"),
        (400,),
        0,
        CLOSED,
    ),
    *(
        Case(
            f"`Content-Length: {text}`",
            lambda t, text=text: head(f"content-length: {text}") + traces(t),
            (400,),
            0,
            CLOSED,
        )
        for text in ("+5", "-5", "5 5", "5, 5", "0x5", "5.0", "1e1", "", "99999999999999999999")
    ),
]

CHUNKS = [
    Case("chunks", lambda t: chunked(traces(t)), (200,), 1),
    Case("chunks, byte by byte", lambda t: chunked(traces(t), size=3), (200,), 1, bytewise=True),
    Case("no chunk but the last: an empty request", lambda _: chunked(b""), (200,), 0),
    Case(
        "chunks with extensions",
        lambda t: chunked(traces(t)).replace(b"\r\n0\r\n", b'\r\n0;a=b;c="d"\r\n'),
        (200,),
        1,
    ),
    Case(
        "chunks and trailers",
        lambda t: chunked(traces(t), end=b"0\r\nx-a: b\r\nx-c: d\r\n\r\n"),
        (200,),
        1,
    ),
    Case(
        "trailers that claim to be headers",
        lambda t: chunked(
            traces(t),
            end=b"0\r\nx-penstock-namespace: elsewhere\r\ncontent-encoding: gzip\r\n\r\n",
        ),
        (200,),
        1,
    ),
    Case(
        "chunks, and the last does not come",
        lambda t: chunked(traces(t), end=b""),
        (),
        0,
        HALF_CLOSED,
    ),
    Case(
        "chunks, and the end of the trailers does not come",
        lambda t: chunked(traces(t), end=b"0\r\n"),
        (),
        0,
        HALF_CLOSED,
    ),
    Case(
        "a chunk that is longer than its size",
        lambda t: chunked(traces(t)).replace(b"7\r\n", b"5\r\n", 1),
        (400,),
        0,
        CLOSED,
    ),
    Case(
        "a chunk size that is no number",
        lambda t: chunked(traces(t), end=b"xyz\r\n"),
        (400,),
        0,
        CLOSED,
    ),
    Case(
        "a chunk size with a sign", lambda t: chunked(traces(t), end=b"-1\r\n"), (400,), 0, CLOSED
    ),
    Case(
        "a chunk size beyond 64 bits",
        lambda t: chunked(traces(t), end=b"f" * 17 + b"\r\n"),
        (400,),
        0,
        CLOSED,
    ),
    Case(
        "chunks with bare line feeds",
        lambda _: head("transfer-encoding: chunked") + b"1\nx\n0\n\n",
        (400,),
        0,
        CLOSED,
    ),
    Case(
        "chunks and a length",
        lambda t: chunked(traces(t), f"content-length: {len(traces(t))}"),
        (400,),
        0,
        CLOSED,
    ),
    Case(
        "a length and chunks",
        lambda t: post(traces(t), "transfer-encoding: chunked"),
        (400,),
        0,
        CLOSED,
    ),
    *(
        Case(
            f"`Transfer-Encoding: {text}`",
            lambda t, text=text: chunked(traces(t)).replace(b": chunked", b": " + text.encode()),
            (status,),
            0,
            CLOSED,
        )
        for text, status in (
            ("gzip, chunked", 501),
            ("gzip", 501),
            ("chunked, gzip", 400),
            ("identity", 501),
            ("chunked, chunked", 400),
            ("xchunked", 501),
        )
    ),
    Case(
        "`Transfer-Encoding` twice",
        lambda t: chunked(traces(t), "transfer-encoding: chunked"),
        (400,),
        0,
        CLOSED,
    ),
    Case(
        "chunks of HTTP/1.0",
        lambda t: chunked(traces(t)).replace(b"HTTP/1.1", b"HTTP/1.0"),
        (501,),
        0,
        CLOSED,
    ),
]

CONNECTIONS = [
    Case(
        "`Connection: keep-alive`", lambda t: post(traces(t), "connection: keep-alive"), (200,), 1
    ),
    Case("`Connection: close`", lambda t: post(traces(t), "connection: close"), (200,), 1, CLOSED),
    Case(
        "`Connection` that names headers of the request",
        lambda t: post(
            traces(t), "connection: content-length, content-type, te", "te: trailers, gzip;q=0.5"
        ),
        (200,),
        1,
    ),
    Case("20 at once", lambda t: several(t, 20), (200,) * 20, 20),
    Case("20 at once, byte by byte", lambda t: several(t, 20), (200,) * 20, 20, bytewise=True),
    Case(
        "`Connection: close` on the first of three at once",
        lambda t: several(t, 3, "connection: close"),
        (200,),
        1,
        CLOSED,
    ),
    Case(
        "three at once, then what is no request",
        lambda t: several(t, 3) + b"\0\0\r\n\r\n",
        (200, 200, 200, 400),
        3,
        CLOSED,
    ),
    Case(
        "two at once, then one whose chunks are broken",
        lambda t: several(t, 2) + chunked(traces(f"{t} #2"), end=b"xyz\r\n"),
        (200, 200, 400),
        2,
        CLOSED,
    ),
    Case(
        "one that is answered before its body, then what is no request",
        lambda t: post(traces(t), line="GET /v1/traces HTTP/1.1") + b"\0\0\r\n\r\n",
        (405, 400),
        0,
        CLOSED,
    ),
    Case(
        "a good one behind one that is malformed",
        lambda t: post(b"bad") + post(traces(t)),
        (400, 200),
        1,
    ),
    Case(
        "the client closes its side after the body",
        lambda t: post(traces(t)),
        (200,),
        1,
        HALF_CLOSED,
    ),
    Case(
        "the client closes its side after 20 at once",
        lambda t: several(t, 20),
        (200,) * 20,
        20,
        HALF_CLOSED,
    ),
    Case(
        "the client closes its side in the third of three",
        lambda t: several(t, 3)[:-3],
        (200, 200),
        2,
        HALF_CLOSED,
    ),
    Case(
        "the client closes its side in the body", lambda t: post(traces(t))[:-3], (), 0, HALF_CLOSED
    ),
    Case(
        "the client closes its side in the head", lambda t: post(traces(t))[:30], (), 0, HALF_CLOSED
    ),
    Case("the client closes in the body", lambda t: post(traces(t))[:-3], (), 0, LEFT),
    Case(
        "HTTP/1.0",
        lambda t: post(traces(t), line="POST /v1/traces HTTP/1.0", host=""),
        (200,),
        1,
        CLOSED,
    ),
    Case(
        "HTTP/1.0 with `Connection: keep-alive`",
        lambda t: post(traces(t), "connection: keep-alive", line="POST /v1/traces HTTP/1.0"),
        (200,),
        1,
        CLOSED,
    ),
]

HEADS = [
    Case(
        "`Expect: 100-continue`", lambda t: post(traces(t), "expect: 100-continue"), (100, 200), 1
    ),
    Case(
        "`Expect: 100-continue` of HTTP/1.0",
        lambda t: post(traces(t), "expect: 100-continue", line="POST /v1/traces HTTP/1.0"),
        (200,),
        1,
        CLOSED,
    ),
    *(
        Case(f"`Expect: 100-continue`, and {what}", lambda _, text=text: text, (status,), 0, CLOSED)
        for what, text, status in (
            ("a length over the limit", head(EXPECT, "content-length: 99999999999"), 413),
            ("another content type", head(EXPECT, FIVE).replace(b"x-protobuf", b"pdf"), 415),
            ("an unknown encoding", head(EXPECT, FIVE, "content-encoding: br"), 415),
            ("another method", head(EXPECT, FIVE, line="PUT /v1/traces HTTP/1.1"), 405),
            ("a namespace twice", head(EXPECT, FIVE, *["x-penstock-namespace: a"] * 2), 400),
            ("neither length nor chunks", head(EXPECT), 411),
        )
    ),
    Case("another `Expect`", lambda t: post(traces(t), "expect: a miracle"), (417,), 0, CLOSED),
    Case(
        "a target with scheme and host",
        lambda t: post(traces(t), line="POST http://somewhere:1/v1/traces HTTP/1.1"),
        (200,),
        1,
    ),
    Case(
        "a target with a question",
        lambda t: post(traces(t), line="POST /v1/traces?a=b HTTP/1.1"),
        (200,),
        1,
    ),
    Case("`OPTIONS *`", lambda _: head(line="OPTIONS * HTTP/1.1"), (404,), 0),
    Case("`OPTIONS`", lambda _: head(line="OPTIONS /v1/traces HTTP/1.1"), (405,), 0),
    Case("`HEAD`", lambda _: head(line="HEAD /v1/traces HTTP/1.1"), (405,), 0),
    Case("`PUT` with a body", lambda t: post(traces(t), line="PUT /v1/traces HTTP/1.1"), (405,), 0),
    Case("no `Host`", lambda t: post(traces(t), host=""), (400,), 0, CLOSED),
    Case("two `Host`", lambda t: post(traces(t), "host: y"), (400,), 0, CLOSED),
    Case(
        "a namespace twice",
        lambda t: post(traces(t), "x-penstock-namespace: a", "x-penstock-namespace: b"),
        (400,),
        0,
    ),
    Case(
        "`Content-Encoding: gzip` twice",
        lambda t: post(
            gzip.compress(gzip.compress(traces(t))),
            "content-encoding: gzip",
            "content-encoding: gzip",
        ),
        (200,),
        1,
    ),
    Case(
        "a header continued on the next line",
        lambda t: post(traces(t), "x-a: b\r\n c"),
        (400,),
        0,
        CLOSED,
    ),
    Case("a space before the colon", lambda t: post(traces(t), "x-a : b"), (400,), 0, CLOSED),
    Case("a header without a colon", lambda t: post(traces(t), "x-a"), (400,), 0, CLOSED),
    Case("NUL in a header", lambda t: post(traces(t), "x-a: b\0c"), (400,), 0, CLOSED),
    Case(
        "a bare carriage return in a header",
        lambda t: post(traces(t), "x-a: b\rc"),
        (400,),
        0,
        CLOSED,
    ),
    Case(
        "lines that end with a bare line feed",
        lambda t: post(traces(t)).replace(b"\r\n", b"\n"),
        (400,),
        0,
        CLOSED,
    ),
    Case(
        "a head of more than 64 KiB",
        lambda t: post(traces(t), f"x-a: {'b' * 70_000}"),
        (431,),
        0,
        CLOSED,
    ),
    Case(
        "a target of more than 64 KiB",
        lambda t: post(traces(t), line=f"POST /{'b' * 70_000} HTTP/1.1"),
        (414,),
        0,
        CLOSED,
    ),
    Case("HTTP/1.2", lambda t: post(traces(t), line="POST /v1/traces HTTP/1.2"), (400,), 0, CLOSED),
    Case(
        "HTTP/2.0 in the first line",
        lambda t: post(traces(t), line="POST /v1/traces HTTP/2.0"),
        (505,),
        0,
        CLOSED,
    ),
]

SECTIONS = {
    "Another protocol": UPGRADES,
    "Where a body ends": LENGTHS,
    "Chunks": CHUNKS,
    "Connections": CONNECTIONS,
    "Heads": HEADS,
}
CASES = [case for section in SECTIONS.values() for case in section]
