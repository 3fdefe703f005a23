"""`/api/v1/query`, `/api/v1/traces/{trace_id}` and `/api/v1/hot-snapshot`."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final

from penstock.model.clock import SystemClock
from penstock.server.auth import Role
from penstock.server.http.bodies import ClientGone
from penstock.server.refusals import Cause, Refusal
from penstock.server.web.routing import JSON, Response, Route

if TYPE_CHECKING:
    from penstock.server.configuration.config import Config
    from penstock.server.querying.queries import Found, Queries
    from penstock.server.web.routing import Request

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
TIERS: Final = ("hot", "warm", "cold")
QUESTION_BYTES: Final = 1024 * 1024
FRESH_S: Final = 1.0
"""A snapshot is given to everybody who asks within this time after it was taken."""
_LONGEST_S: Final = 600.0
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")


class QueryApi:
    """Asks in other processes; stops when the client goes away."""

    def __init__(self, config: Config, queries: Queries) -> None:
        self._timeout_s = config.limits.timeout
        self._queries = queries

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/api/v1/query", self._query, (Role.QUERY,)),
            Route("GET", "/api/v1/traces/{trace_id}", self._trace, (Role.QUERY,)),
        ]

    async def _query(self, request: Request) -> Response:
        body = await request.body.within(request.headers, QUESTION_BYTES, self._timeout_s)
        question = _question(body)
        as_arrow = ARROW_STREAM in request.headers.get("accept", "")
        question |= {"kind": "query", "format": "arrow" if as_arrow else "json"}
        answer = await self._ask(request, question)
        return Response(200, answer.body, ARROW_STREAM if as_arrow else JSON)

    async def _trace(self, request: Request) -> Response:
        await request.body.within(request.headers, QUESTION_BYTES, self._timeout_s)
        trace_id = request.parameters["trace_id"].lower()
        if not _TRACE_ID.fullmatch(trace_id):
            raise Refusal(Cause.INVALID, "a trace id is 32 hexadecimal digits")
        partial = _partial_of(request.query.get("partial", "false"))
        question = {"kind": "trace", "trace_id": trace_id, "tiers": TIERS, "partial": partial}
        answer = await self._ask(request, question)
        if not answer.document["found"]:
            raise Refusal(Cause.NOT_FOUND, f"there is no span of the trace {trace_id}")
        return Response(200, answer.body)

    async def _ask(self, request: Request, question: dict[str, Any]) -> Found:
        seen = request.namespaces
        question["namespaces"] = None if seen is None else sorted(seen)
        asking = asyncio.ensure_future(self._queries.ask(question, who=request.caller.identity))
        leaving = asyncio.ensure_future(request.body.gone())
        try:
            await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise ClientGone
            return asking.result()
        finally:
            asking.cancel()
            leaving.cancel()


class SnapshotApi:
    """Takes one at a time, in a process that answers queries; calls that come together share it."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._clock = SystemClock()
        self._taking: dict[bool, asyncio.Task[bytes]] = {}
        self._taken: dict[bool, tuple[float, bytes]] = {}
        """Partial ones apart: they are for those alone who ask for them."""
        self._turn = asyncio.Lock()

    def routes(self) -> list[Route]:
        return [Route("POST", "/api/v1/hot-snapshot", self._snapshot, (Role.QUERY,))]

    async def _snapshot(self, request: Request) -> Response:
        if request.namespaces is not None:
            text = "a snapshot has the rows of every namespace, and these are not all"
            raise Refusal(Cause.FORBIDDEN, text)
        partial = _partial_of(request.query.get("partial", "false"))
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


def _question(body: bytes) -> dict[str, Any]:
    """What a client asks; Refusal says what is wrong with it."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(Cause.INVALID, "the body is no JSON") from None
    if not isinstance(asked, dict) or not isinstance(asked.get("sql"), str):
        raise Refusal(Cause.INVALID, 'the body is a JSON object with a text: {"sql": "SELECT 1"}')
    unknown = sorted(asked.keys() - {"sql", "tiers", "partial"})
    if unknown:
        raise Refusal(Cause.INVALID, f"{unknown[0][:80]!r} is neither sql, tiers nor partial")
    if not isinstance(asked.get("partial", False), bool):
        raise Refusal(Cause.INVALID, "partial is true or false")
    tiers = asked.get("tiers", TIERS)
    if not isinstance(tiers, list | tuple) or not tiers or any(t not in TIERS for t in tiers):
        raise Refusal(Cause.INVALID, f"tiers is a list of {', '.join(TIERS)}")
    if not _is_text(asked["sql"]):
        raise Refusal(Cause.INVALID, "the SQL is no text")
    return {"sql": asked["sql"], "tiers": list(tiers), "partial": asked.get("partial", False)}


def _partial_of(text: str) -> bool:
    """`?partial=true` in an address."""
    if text not in {"true", "false"}:
        raise Refusal(Cause.INVALID, "partial is true or false")
    return text == "true"


def _is_text(sql: str) -> bool:
    """JSON can speak of halves of characters, which nothing else can."""
    try:
        sql.encode()
    except UnicodeEncodeError:
        return False
    return True
