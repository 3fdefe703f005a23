"""OTLP over HTTP/1.1, in protobuf, on a connection that is kept."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.load.sender import Answer, Outcome, acknowledged

if TYPE_CHECKING:
    from penstock.load.plan import Endpoint, Plan
    from penstock.otel.signals import Signal

_RETRYABLE: Final = frozenset({429, 502, 503, 504})
_READ_BYTES: Final = 1024 * 1024


class Response(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        """Whether the connection ends with it."""
        return self.headers.get("connection", "").lower() == "close"


class HttpSender:
    """One connection, opened with its first request."""

    def __init__(self, plan: Plan, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._timeout_s = plan.timeout_s
        self._tls = ssl.create_default_context() if endpoint.tls else None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        lines = [f"Host: {endpoint.authority}", "Content-Type: application/x-protobuf"]
        if plan.namespace is not None:
            lines.append(f"X-Penstock-Namespace: {plan.namespace}")
        if plan.token is not None:
            lines.append(f"Authorization: Bearer {plan.token}")
        self._head = "\r\n".join(lines)

    async def send(self, signal: Signal, data: bytes) -> Answer:
        """One `POST`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._exchange(signal, data)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            await self.close()
            return Answer(Outcome.RETRY, f"{type(error).__name__}: {error}")
        if response.closes:
            await self.close()
        if response.status == 200:
            return acknowledged(signal, response.body)
        again = response.status in _RETRYABLE
        message = f"HTTP {response.status}: {_message(response)}"
        delay_s = _retry_after_s(response.headers.get("retry-after"))
        return Answer(Outcome.RETRY if again else Outcome.REFUSED, message, delay_s)

    async def close(self) -> None:
        """Ends the connection; the next request opens another."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
            with contextlib.suppress(OSError):
                await streams[1].wait_closed()

    async def _exchange(self, signal: Signal, data: bytes) -> Response:
        if self._streams is None:
            host, port = self._endpoint.host, self._endpoint.port
            self._streams = await asyncio.open_connection(
                host, port, ssl=self._tls, limit=_READ_BYTES
            )
        reader, writer = self._streams
        path = self._endpoint.path + signal.http_path
        head = f"POST {path} HTTP/1.1\r\n{self._head}\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode("latin-1"))
        writer.write(data)
        await writer.drain()
        return await read_response(reader)


async def read_response(reader: asyncio.StreamReader) -> Response:
    """The next response; ValueError or EOFError where it is none."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"no HTTP response: {first[:40]!r}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Response(int(rest[:3]), headers, body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        continue  # trailers
    return b"".join(pieces)


def _message(response: Response) -> str:
    """What the `google.rpc.Status` of a refusal says, or the beginning of another body."""
    if response.headers.get("content-type", "").startswith("application/x-protobuf"):
        from google.protobuf.message import DecodeError
        from google.rpc.status_pb2 import Status

        with contextlib.suppress(DecodeError):
            return str(Status.FromString(response.body).message)
    return response.body[:200].decode("utf-8", "replace")


def _retry_after_s(text: str | None) -> float | None:
    """Seconds, or a date."""
    if text is None:
        return None
    if text.isdigit():
        return float(text)
    with contextlib.suppress(ValueError):
        until = parsedate_to_datetime(text)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    return None
