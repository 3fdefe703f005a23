"""Answers over HTTP to requests of OTLP: in protobuf where the request is, in JSON otherwise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from penstock.server.refusals import Cause, Refusal, as_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Send = Callable[[dict[str, Any]], Awaitable[None]]

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"


async def refuse(
    send: Send, refusal: Refusal, kind: str, linger: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Answers with the status, in protobuf where the request is.

    `linger`: the rest of the body has not come; the connection is closed, after this.
    """
    extra = []
    if refusal.retry_after_header is not None:
        extra.append((b"retry-after", refusal.retry_after_header.encode()))
    if refusal.cause is Cause.WRONG_METHOD:
        extra.append((b"allow", b"POST"))
    if refusal.cause is Cause.UNAUTHENTICATED:
        extra.append((b"www-authenticate", b"Bearer"))
    if linger is not None:
        extra.append((b"connection", b"close"))
    status = refusal.status()
    is_protobuf = kind == PROTOBUF
    body = status.SerializeToString() if is_protobuf else json.dumps(as_json(status)).encode()
    await send_answer(
        send, refusal.cause.http_status, PROTOBUF if is_protobuf else JSON, body, extra, linger
    )


async def send_answer(
    send: Send,
    status: int,
    kind: str,
    body: bytes,
    extra: list[tuple[bytes, bytes]] | None = None,
    linger: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """All of it; `linger` runs before its end."""
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        *(extra or []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if linger is not None:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await linger()
        body = b""
    await send({"type": "http.response.body", "body": body})
