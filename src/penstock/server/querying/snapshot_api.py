"""`POST /api/v1/hot-snapshot`: calls that come together share one snapshot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.model.clock import SystemClock
from penstock.server.auth import Role
from penstock.server.querying.api import partial_of
from penstock.server.refusals import Cause, Refusal
from penstock.server.web.routing import Response, Route

if TYPE_CHECKING:
    from penstock.server.querying.queries import Queries
    from penstock.server.web.routing import Request

FRESH_S: Final = 1.0
"""A snapshot is given to everybody who asks within this time after it was taken."""
_LONGEST_S: Final = 600.0


class SnapshotApi:
    """Takes one at a time, in a process that answers queries."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._clock = SystemClock()
        self._taking: dict[bool, asyncio.Task[bytes]] = {}
        self._taken: dict[bool, tuple[float, bytes]] = {}
        """Partial ones apart: they are for those alone who ask for them."""
        self._turn = asyncio.Lock()

    def routes(self) -> list[Route]:
        """What it answers."""
        return [Route("POST", "/api/v1/hot-snapshot", self._snapshot, (Role.QUERY,))]

    async def _snapshot(self, request: Request) -> Response:
        if request.namespaces is not None:
            text = "a snapshot has the rows of every namespace, and these are not all"
            raise Refusal(Cause.FORBIDDEN, text)
        partial = partial_of(request.query.get("partial", "false"))
        taken = self._taken.get(partial)
        if taken is not None and self._clock.monotonic() - taken[0] < FRESH_S:
            return Response(200, taken[1])
        if partial not in self._taking:
            self._taking[partial] = asyncio.create_task(self._take(partial))
        # Shielded: one client that goes away does not take it from the others.
        return Response(200, await asyncio.shield(self._taking[partial]))

    async def _take(self, partial: bool) -> bytes:
        try:
            async with self._turn:  # both kinds write the same file
                question = {"kind": "snapshot", "partial": partial}
                answer = await self._queries.ask(question, _LONGEST_S)
            self._taken[partial] = self._clock.monotonic(), answer.body
            return answer.body
        finally:
            del self._taking[partial]
