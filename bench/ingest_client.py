"""The load generator's process with a gRPC client that costs next to nothing.

Generator and server share the cores, and a client of `grpc.aio` takes as much of them for a small
request as a server does. Here the frames of HTTP/2 are put together by hand: one block of headers
that never changes, the message in data frames as the server's windows allow. It knows enough for
servers on gRPC's core, on loopback, and no more; `penstock load` itself uses gRPC's client.

    python bench/ingest_client.py        as `python -m penstock.load.process`
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from typing import TYPE_CHECKING, Final

from penstock.load import process
from penstock.load.http_sender import HttpSender
from penstock.load.sender import ACKNOWLEDGED, Answer, Outcome
from penstock.otel.signals import Signal

if TYPE_CHECKING:
    from penstock.load.plan import Endpoint, Plan
    from penstock.load.sender import Sender

CONNECTIONS: Final = 16
"""Requests in flight share them."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_HEADER_TABLE_SIZE, _INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE = 1, 4, 5
_SETTING = struct.Struct(">HI")
_WORD = struct.Struct(">I")
_MESSAGE = struct.Struct(">BI")
_OK: Final = b"\x0bgrpc-status\x010"
"""A literal, since the server may not use a table of headers."""


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + _WORD.pack(stream) + payload


def _literal(name: str, value: str) -> bytes:
    """A header that nobody is to remember; both are short."""
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


class Connection(asyncio.Protocol):
    """Many requests at once, each on a stream."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._stream = -1
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._trailers: dict[int, bytes] = {}
        self._windows: dict[int, int] = {}
        self._window = self._first_window = 65_535
        self._frame_bytes = 16_384
        self._opened = asyncio.Event()

    # A stream's transport is always this one
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Greets the server."""
        self._transport = transport
        settings = _SETTING.pack(_HEADER_TABLE_SIZE, 0)
        much = _frame(_WINDOW, 0, 0, _WORD.pack(2**30))  # for all the answers
        transport.write(_PREFACE + _frame(_SETTINGS, 0, 0, settings) + much)

    async def call(self, headers: bytes, data: bytes) -> Answer:
        """One unary call."""
        assert self._transport is not None
        self._stream += 2
        stream = self._stream
        answer = self._answers[stream] = asyncio.get_running_loop().create_future()
        head = _frame(_HEADERS, _END_HEADERS, stream, headers)
        left = memoryview(_MESSAGE.pack(0, len(data)) + data)
        self._windows[stream] = self._first_window
        while left:
            size = min(len(left), self._window, self._windows[stream], self._frame_bytes)
            if size <= 0:
                self._opened.clear()
                await self._opened.wait()
                continue
            self._window -= size
            self._windows[stream] -= size
            flags = _END_STREAM if size == len(left) else 0
            length = size.to_bytes(3, "big") + bytes((_DATA, flags)) + _WORD.pack(stream)
            self._transport.writelines([head, length, left[:size]])
            head, left = b"", left[size:]
        return await answer

    def data_received(self, data: bytes) -> None:
        """Takes whole frames."""
        self._received += data
        buffer, at = self._received, 0
        while len(buffer) - at >= 9:
            end = at + 9 + int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) < end:
                break
            [stream] = _WORD.unpack_from(buffer, at + 5)
            self._take(buffer[at + 3], buffer[at + 4], stream, bytes(buffer[at + 9 : end]))
            at = end
        del buffer[:at]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        assert self._transport is not None
        if kind == _HEADERS:
            self._trailers[stream] = payload
        elif kind == _SETTINGS and not flags & _ACK:
            self._set(payload)
            self._transport.write(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._transport.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW:
            self._widen(stream, _WORD.unpack(payload)[0])
        elif kind in (_RST, _GOAWAY):
            self._transport.close()
        if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            self._finish(stream)

    def _set(self, settings: bytes) -> None:
        for name, value in _SETTING.iter_unpack(settings):
            if name == _MAX_FRAME_SIZE:
                self._frame_bytes = value
            elif name == _INITIAL_WINDOW_SIZE:
                for stream in self._windows:
                    self._windows[stream] += value - self._first_window
                self._first_window = value
        self._opened.set()

    def _widen(self, stream: int, by: int) -> None:
        if not stream:
            self._window += by
        elif stream in self._windows:
            self._windows[stream] += by
        self._opened.set()

    def _finish(self, stream: int) -> None:
        self._windows.pop(stream, None)
        trailers, answer = self._trailers.pop(stream), self._answers.pop(stream)
        if not answer.done():
            refused = Answer(Outcome.REFUSED, repr(trailers))
            answer.set_result(ACKNOWLEDGED if _OK in trailers else refused)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever was under way has failed."""
        self._opened.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(Answer(Outcome.REFUSED, f"the connection broke: {exc}"))

    def close(self) -> None:
        """Ends it."""
        if self._transport is not None:
            self._transport.close()


class Client:
    """Opens connections as they are needed."""

    def __init__(self) -> None:
        self._senders = itertools.count()
        self._opening: dict[int, asyncio.Task[Connection]] = {}

    def new_sender(self, plan: Plan, endpoint: Endpoint) -> Sender:
        """What the generator asks for, for each request in flight. HTTP/1.1 is cheap as it is."""
        if endpoint.transport == "http":
            return HttpSender(plan, endpoint)
        return BareSender(self, endpoint, next(self._senders) % CONNECTIONS)

    async def connection(self, number: int, endpoint: Endpoint) -> Connection:
        """The connection with that number."""
        task = self._opening.get(number)
        if task is None:
            task = self._opening[number] = asyncio.create_task(_open(endpoint))
        return await task


async def _open(endpoint: Endpoint) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, endpoint.host, endpoint.port)
    return connection


class BareSender:
    """A share of a connection."""

    def __init__(self, client: Client, endpoint: Endpoint, number: int) -> None:
        self._client = client
        self._endpoint = endpoint
        self._number = number
        self._connection: Connection | None = None
        self._headers = {signal: _headers(signal, endpoint) for signal in Signal}

    async def send(self, signal: Signal, data: bytes) -> Answer:
        """One `Export`."""
        if self._connection is None:
            self._connection = await self._client.connection(self._number, self._endpoint)
        return await self._connection.call(self._headers[signal], data)

    async def close(self) -> None:
        """Ends the connection, for all that share it."""
        if self._connection is not None:
            self._connection.close()


def _headers(signal: Signal, endpoint: Endpoint) -> bytes:
    """POST and http are numbers 3 and 6 of the table that everybody knows."""
    fields = {
        ":path": signal.grpc_method,
        ":authority": endpoint.authority,
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"\x83\x86" + b"".join(_literal(*field) for field in fields.items())


def main() -> None:
    """The process, on the quickest event loop that there is."""
    try:
        import uvloop
    except ImportError:
        process.run(Client().new_sender)
    else:
        process.run(Client().new_sender, uvloop.new_event_loop)


if __name__ == "__main__":
    main()
