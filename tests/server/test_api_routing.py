"""The front of the web port, without a network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.server.auth import Gate, Role
from penstock.server.configuration.config import Limits
from penstock.server.refusals import Cause, Refusal
from penstock.server.web import routing
from penstock.server.web.routing import Request, Response, Route, Router
from tests.server.asgi import call

if TYPE_CHECKING:
    import pytest

ANYONE = tuple(Role)


async def large(_: Request) -> Response:
    """An answer of a million bytes."""
    return Response(200, bytes(1_000_000))


async def named(request: Request) -> Response:
    """What the path said."""
    return Response.of(request.parameters)


async def broken(_: Request) -> Response:
    """What nobody thought of."""
    raise ZeroDivisionError


async def busy(_: Request) -> Response:
    """Not now."""
    raise Refusal(Cause.BUSY, "later", retry_after_s=2.5)


def router(*, timeout_s: float = 30.0) -> Router:
    """Over all of them."""
    routes = [
        Route("GET", "/large", large, ANYONE),
        Route("GET", "/a/{one}/b/{two}", named, ANYONE),
        Route("GET", "/broken", broken, ANYONE),
        Route("GET", "/busy", busy, ANYONE),
        Route("POST", "/busy", large, ANYONE),
    ]
    return Router(routes, Gate(None), Limits(timeout=timeout_s))


def ask(method: str, path: str, **headers: str) -> Any:
    """The answer."""
    answer = asyncio.run(call(router(), method, path, headers))
    assert answer is not None
    return answer


def test_large_answer_goes_in_pieces() -> None:
    """All of them, in order."""
    answer = ask("GET", "/large")
    assert (answer.status, answer.body) == (200, bytes(1_000_000))


def test_parts_of_a_path_are_named() -> None:
    """A part has no slash, and is not empty."""
    assert ask("GET", "/a/1/b/x.y").json == {"one": "1", "two": "x.y"}
    for path in ("/a/1/b/", "/a//b/1", "/a/1/2/b/3", "/a/1/b/2/"):
        assert ask("GET", path).status == 404


def test_two_routes_may_share_a_path() -> None:
    """The method decides; another one learns of both."""
    assert ask("POST", "/busy").status == 200
    answer = ask("GET", "/busy")
    assert (answer.status, answer.headers["retry-after"]) == (429, "3")
    assert ask("PUT", "/busy").headers["allow"] == "GET, POST"


def test_what_nobody_thought_of_is_not_told() -> None:
    """It is in the log."""
    answer = ask("GET", "/broken")
    assert (answer.status, answer.json["message"]) == (500, "the server failed; its log says how")


def test_namespace_that_is_no_text_is_refused() -> None:
    """Headers are bytes."""
    assert ask("GET", "/large", **{"x-penstock-namespace": "\xff"}).status == 400


class Stuck:
    """A client that takes the head of an answer, and no more."""

    def __init__(self) -> None:
        self.pieces = 0
        self.reached = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        """ASGI."""
        if message["type"] == "http.response.body":
            self.pieces += 1
            self.reached.set()
            await asyncio.Event().wait()


def scope(path: str) -> dict[str, Any]:
    """Of a request without a body."""
    return {"type": "http", "method": "GET", "path": path, "headers": []}


async def nothing() -> dict[str, Any]:
    """A body that is empty."""
    return {"type": "http.request", "body": b"", "more_body": False}


def test_client_that_takes_nothing_is_left() -> None:
    """After the time that a request may take."""
    stuck = Stuck()
    asyncio.run(router(timeout_s=0.05)(scope("/large"), nothing, stuck.send))
    assert stuck.pieces == 1


def test_answers_on_their_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are put off until they are taken."""
    monkeypatch.setattr(routing, "_MOST_HELD_BYTES", 999_999)

    async def run() -> list[int]:
        app, stuck = router(), Stuck()
        sending = asyncio.create_task(app(scope("/large"), nothing, stuck.send))
        await stuck.reached.wait()
        first = await call(app, "GET", "/large")
        sending.cancel()
        await asyncio.wait([sending])
        second = await call(app, "GET", "/large")
        assert first is not None
        assert second is not None
        return [first.status, second.status]

    assert asyncio.run(run()) == [429, 200]
