"""Calls an ASGI application without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.model.errors import InvalidArgument
from penstock.otel import request_from_json
from penstock.server.receiving.checker import Checked, Outcome
from penstock.server.refusals import Cause, Refusal
from tests.server.running import Answer

if TYPE_CHECKING:
    from penstock.server.configuration.config import Limits
    from penstock.server.receiving.checking import Arrived

END = None
"""In place of a piece of a body: the client goes away."""


class FakeIngest:
    """Takes down what it is given."""

    def __init__(self) -> None:
        self.taken: list[tuple[Any, str, bytes]] = []
        self.error: BaseException | None = None

    async def take(self, sent: Any, namespace: str, checked: Checked) -> None:
        """As `Ingest.take`."""
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.taken.append((sent, namespace, checked.data))


class FakeChecks:
    """Unpacks, reads JSON, and takes everything else as it is."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.rejected, self.text = 0, ""

    async def check(self, arrived: Arrived, _: Any, grow: Callable[[int], None]) -> Checked:
        """As `Checks.check`."""
        data = arrived.data
        if arrived.unpack is not None:
            data = arrived.unpack(data, self.limits.decompressed)
            grow(max(0, len(data) - len(arrived.data)))
        if arrived.is_json:
            try:
                data = request_from_json(arrived.signal, data).data
            except InvalidArgument as error:
                raise Refusal(Cause.INVALID, str(error)) from None
        return Checked(Outcome.SOUND, data, 1, self.rejected, self.text)


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
