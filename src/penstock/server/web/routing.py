"""The web port's front: who asks for what, and how answers and refusals are sent."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from penstock.server.auth import LOOK_S, NOBODY, Caller, Role, Standing, namespace_of
from penstock.server.http.bodies import Body, ClientGone
from penstock.server.http.head import Headers, announces_body, headers_of, holds_body_back
from penstock.server.refusals import Cause, Refusal, as_json, refusal_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from penstock.server.auth import Gate
    from penstock.server.configuration.config import Limits

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

JSON: Final = "application/json"
_RETRY_S: Final = "5"
_PIECE_BYTES: Final = 256 * 1024
_MOST_HELD_BYTES: Final = 256 * 1024 * 1024
"""Of answers that were made and not taken; one token of several has a quarter of it."""
_LOG = logging.getLogger(__name__)
_PARAMETER: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Request:
    """One that was let in."""

    headers: dict[str, str]
    body: Body
    parameters: dict[str, str] = field(default_factory=dict)
    """The parts of the path that its route names."""
    namespaces: frozenset[str] | None = None
    """Those where it has a role of the route; None: all."""
    query: dict[str, str] = field(default_factory=dict)
    """What stands behind the path; of a name that is there twice, the last."""
    caller: Caller = NOBODY


@dataclass(frozen=True, slots=True)
class Response:
    """What is sent back."""

    status: int
    body: bytes
    kind: str = JSON
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, document: Any, status: int = 200) -> Response:
        return cls(status, json.dumps(document).encode())


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path like `/api/v1/traces/{trace_id}`, and who answers there."""

    method: str
    path: str
    answer: Callable[[Request], Awaitable[Response]]
    roles: tuple[Role, ...]
    """One of them lets in, to its namespaces; ADMIN alone: who oversees all of them."""
    is_open: bool = False
    """Needs no token; it must tell no more than well or not to who has none."""

    def match(self, path: str) -> dict[str, str] | None:
        """Its parameters, where the path is one of its."""
        found = re.fullmatch(_PARAMETER.sub(r"(?P<\1>[^/]+)", self.path), path)
        return None if found is None else found.groupdict()


class Router:
    """An ASGI application: the first route that fits answers."""

    def __init__(self, routes: Iterable[Route], gate: Gate, limits: Limits) -> None:
        self.routes = tuple(routes)
        self._gate = gate
        self._limits = limits
        self._held: Counter[str] = Counter()
        """Bytes of answers that clients have not taken yet, by whose they are."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers: Headers = {}
        linger: Callable[[], Awaitable[None]] | None = None
        standing: Standing | None = None
        body = Body(receive, held_back=holds_body_back(scope))
        try:
            headers = headers_of(scope)
            response, standing = await self._respond(scope, headers, body)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - whatever it was, the client must hear of it
            refusal = refusal_for(error)
            response = await self._refused(refusal, scope["path"], headers, body)
            if announces_body(headers) and not body.ended:
                linger = functools.partial(body.linger, refusal, self._limits)
        who = "" if standing is None else standing.who
        self._held[who] += len(response.body)
        try:
            with_body = scope["method"] != "HEAD"
            await self._send(send, response, standing, linger, with_body=with_body)
        finally:
            self._held[who] -= len(response.body)
            if not self._held[who]:
                del self._held[who]

    async def _respond(
        self, scope: Scope, headers: dict[str, str], body: Body
    ) -> tuple[Response, Standing | None]:
        """The answer, and what must hold while it is sent."""
        found = [
            (each, at) for each in self.routes if (at := each.match(scope["path"])) is not None
        ]
        caller = self._caller(headers, is_open=any(route.is_open for route, _ in found))
        if not found:
            raise Refusal(Cause.NOT_FOUND, f"nothing is at {scope['path']}")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        for route, parameters in found:
            if route.method == method:
                namespaces = _namespaces(route, caller, namespace_of(headers))
                query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
                request = Request(headers, body, parameters, namespaces, query, caller)
                if route.is_open:
                    return await route.answer(request), None
                self._check_taken(caller)
                response = await self._while_it_stands(caller, route.answer(request))
                return response, Standing(self._gate, caller)
        wanted = ", ".join(route.method for route, _ in found)
        raise Refusal(Cause.WRONG_METHOD, f"{scope['path']} takes {wanted}")

    def _check_taken(self, caller: Caller) -> None:
        """Who does not take answers gets no more of them; others wait only where memory is short.

        Invariant: health is not asked about this; what it answers is small.
        """
        own, most = self._held[caller.identity], _MOST_HELD_BYTES
        share = most // 4 if self._gate.wants_tokens else most
        if own > share or self._held.total() > (most if own else 2 * most):
            text = "answers have not been taken yet"
            raise Refusal(Cause.BUSY, text, retry_after_s=1.0)

    async def _while_it_stands(self, caller: Caller, answering: Awaitable[Response]) -> Response:
        """The answer; Refusal as soon as the token is withdrawn, and then nobody works on it."""
        task = asyncio.ensure_future(answering)
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=LOOK_S)
                self._gate.check(caller)
                if done:
                    return task.result()
        finally:
            task.cancel()

    def _caller(self, headers: Headers, *, is_open: bool) -> Caller:
        """Who asks; NOBODY where anybody may, and this one is not known."""
        self._gate.refresh()
        try:
            return self._gate.caller(headers.get("authorization"))
        except Refusal:
            if is_open:
                return NOBODY
            raise

    async def _send(
        self,
        send: Send,
        response: Response,
        standing: Standing | None,
        linger: Callable[[], Awaitable[None]] | None,
        *,
        with_body: bool,
    ) -> None:
        """Piece by piece; left is who takes none for long, or whose token is withdrawn."""
        status, head = response.status, _head(response)
        await send({"type": "http.response.start", "status": status, "headers": head})
        body = memoryview(response.body if with_body else b"")
        for at in range(0, len(body), _PIECE_BYTES):
            piece = {"type": "http.response.body", "body": bytes(body[at : at + _PIECE_BYTES])}
            try:
                if standing is not None:
                    standing.check()
                async with asyncio.timeout(self._limits.timeout):
                    await send({**piece, "more_body": True})
            except (TimeoutError, Refusal) as error:
                why = str(error) or "it does not take it"
                _LOG.warning("a client is left in the middle of its answer: %s", why)
                return
        if linger is not None:
            await linger()
        await send({"type": "http.response.body", "body": b""})

    async def _refused(
        self, refusal: Refusal, path: str, headers: dict[str, str], body: Body
    ) -> Response:
        extra = []
        if announces_body(headers) and not body.ended:
            await body.settle(refusal, self._limits)
            if not body.ended:
                extra.append(("connection", "close"))  # the rest of the body was not read
        if refusal.retry_after_header is not None:
            extra.append(("retry-after", refusal.retry_after_header))
        if refusal.cause is Cause.UNAUTHENTICATED:
            extra.append(("www-authenticate", "Bearer"))
        if refusal.cause is Cause.WRONG_METHOD:
            wanted = [route.method for route in self.routes if route.match(path) is not None]
            extra.append(("allow", ", ".join(wanted)))
        document = json.dumps(as_json(refusal.status())).encode()
        return Response(refusal.cause.http_status, document, headers=tuple(extra))


def _namespaces(route: Route, caller: Caller, asked: str | None) -> frozenset[str] | None:
    """What it may see there; Refusal where that is nothing."""
    if route.is_open:
        return frozenset()
    if route.roles == (Role.ADMIN,):
        caller.check_oversees()
        return None
    return caller.readable(route.roles, asked)


def _head(response: Response) -> list[tuple[bytes, bytes]]:
    head = {"content-type": response.kind, "content-length": str(len(response.body))}
    head.update(response.headers)
    if response.status == Cause.UNAVAILABLE.http_status:
        head.setdefault("retry-after", _RETRY_S)
    return [(name.encode(), value.encode()) for name, value in head.items()]
