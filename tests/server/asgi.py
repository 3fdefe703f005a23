"""Calls an ASGI application without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from penstock.server.ingest import Accepted
from tests.server.running import Answer

END = None
"""In place of a piece of a body: the client goes away."""


class FakeIngest:
    """Takes down what it is given."""

    def __init__(self) -> None:
        self.taken: list[tuple[Any, str, bytes]] = []
        self.answer = Accepted()
        self.error: BaseException | None = None

    async def take(self, sent: Any, namespace: str, data: bytes) -> Accepted:
        """As `Ingest.take`."""
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.taken.append((sent, namespace, data))
        return self.answer


async def call(
    app: Any,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: Iterable[bytes | None] = (b"",),
    *,
    stalls: bool = False,
) -> Answer | None:
    """The answer; None where there was none. `stalls`: the body never ends.

    Chunks, unless the headers say otherwise.
    """
    pieces = list(body)
    headers = {} if headers is None else headers
    if "content-length" not in headers:
        headers = {"transfer-encoding": "chunked", **headers}
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        if not pieces:
            if stalls:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}
        piece = pieces.pop(0)
        if piece is END:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(pieces) or stalls}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    pairs = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": pairs}
    await app(scope, receive, send)
    if not sent:
        return None
    start, *rest = sent
    heads = {name.decode(): value.decode() for name, value in start["headers"]}
    content = b"".join(message.get("body", b"") for message in rest)
    assert int(heads["content-length"]) == len(content) or method == "HEAD"
    return Answer(start["status"], heads, content)
