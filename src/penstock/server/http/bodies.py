"""The body of an HTTP request: as it arrives, within its bound, in time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.server.configuration.config import Limits

    Receive = Callable[[], Awaitable[dict[str, Any]]]


KEEPING_S: Final = 1.0
"""How long an answer waits for the rest of a body that nobody wants, so that the connection can be
kept for the next request."""


class ClientGone(Exception):
    """The client has gone; there is nobody to answer."""


class Body:
    """A request's body, as it arrives.

    `held_back`: the client sends it when it is asked for; the first piece that is awaited asks
    (`100 Continue`). Whoever can refuse the request by its head does so before.
    """

    def __init__(self, receive: Receive, *, held_back: bool = False) -> None:
        self._receive = receive
        self._held_back = held_back
        self.ended = False

    async def piece(self) -> bytes:
        """What comes next; not to be asked for after the end."""
        self._held_back = False
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.ended = True
            raise ClientGone
        self.ended = not message.get("more_body")
        piece: bytes = message.get("body", b"")
        return piece

    async def whole(self, most: int, grow: Callable[[int], None] | None = None) -> bytes:
        """All of it; Refusal where it is too much."""
        pieces: list[bytes] = []
        size = 0
        while not self.ended:
            pieces.append(await self.piece())
            size += len(pieces[-1])
            if size > most:
                raise Refusal(Cause.TOO_LARGE, f"the body has more than {most} bytes")
            if grow is not None:
                grow(len(pieces[-1]))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def within(
        self,
        headers: dict[str, str],
        most: int,
        timeout_s: float,
        grow: Callable[[int], None] | None = None,
    ) -> bytes:
        """All of it in time; Refusal where it is too much, too slow, or not what was announced."""
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            raise Refusal(Cause.TOO_LARGE, f"a body of {length} bytes; the most is {most}")
        try:
            async with asyncio.timeout(timeout_s):
                body = await self.whole(most, grow)
        except TimeoutError:
            raise Refusal(Cause.TOO_SLOW, "the body did not arrive in time") from None
        # Whoever acknowledges it relies on this: no part of it, and no default in its place.
        if length.isdigit() and int(length) != len(body):
            text = f"{len(body)} of {length} bytes were read"
            raise Refusal(Cause.UNAVAILABLE, text, retry_after_s=1.0)
        return body

    async def settle(self, refusal: Refusal, limits: Limits) -> None:
        """Before a refusal is sent: `ended` says then whether the connection can be kept.

        What is too large is answered at once, and so is what was too slow.
        """
        if refusal.cause not in (Cause.TOO_LARGE, Cause.TOO_SLOW):
            await self.throw_away(limits.request, min(limits.timeout, KEEPING_S))

    async def linger(self, refusal: Refusal, limits: Limits) -> None:
        """After it was sent, and before the connection is closed.

        Closing it while bytes come is a reset, which can take the answer from a client that reads
        it only when it has sent everything.
        """
        if refusal.cause is not Cause.TOO_SLOW:
            await self.throw_away(limits.request, limits.timeout)

    async def throw_away(self, most: int, timeout_s: float) -> None:
        """Reads the rest, for nobody; a longer or slower one is cut.

        One that is held back stays where it is: nobody is asked for what is not wanted.
        """
        if self._held_back:
            return
        with contextlib.suppress(TimeoutError, ClientGone):
            async with asyncio.timeout(timeout_s):
                while most > 0 and not self.ended:
                    most -= len(await self.piece())

    async def gone(self) -> None:
        """Returns when the client goes away. After the end of the body alone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
