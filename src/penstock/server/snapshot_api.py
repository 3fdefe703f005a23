"""`POST /api/v1/hot-snapshot`: calls that come together share one snapshot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.model.clock import SystemClock
from penstock.server.refusals import Cause, Refusal
from penstock.server.routing import Response, Route

if TYPE_CHECKING:
    from penstock.server.queries import Queries
    from penstock.server.routing import Request

FRESH_S: Final = 1.0
"""A snapshot is given to everybody who asks within this time after it was taken."""
_LONGEST_S: Final = 600.0


class SnapshotApi:
    """Takes one at a time, in a process that answers queries."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._clock = SystemClock()
        self._taking: asyncio.Task[bytes] | None = None
        self._taken: tuple[float, bytes] | None = None

    def routes(self) -> list[Route]:
        """What it answers."""
        return [Route("POST", "/api/v1/hot-snapshot", self._snapshot)]

    async def _snapshot(self, request: Request) -> Response:
        if request.namespaces is not None:
            text = "a snapshot has the rows of every namespace, and these are not all"
            raise Refusal(Cause.FORBIDDEN, text)
        if self._taken is not None and self._clock.monotonic() - self._taken[0] < FRESH_S:
            return Response(200, self._taken[1])
        if self._taking is None:
            self._taking = asyncio.create_task(self._take())
        # Shielded: one client that goes away does not take it from the others.
        return Response(200, await asyncio.shield(self._taking))

    async def _take(self) -> bytes:
        try:
            answer = await self._queries.ask({"kind": "snapshot"}, _LONGEST_S)
            self._taken = self._clock.monotonic(), answer.body
            return answer.body
        finally:
            self._taking = None
