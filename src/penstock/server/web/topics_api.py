"""`/api/v1/topics` and `/api/v1/subscribers`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from penstock.server.auth import Role
from penstock.server.web.routing import Response, Route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.children.guarding import Guarded
    from penstock.server.web.routing import Request

_ANSWER_S: Final = 5.0
_READERS: Final = (Role.QUERY, Role.SUBSCRIBE, Role.ADMIN)


class TopicsApi:
    """Answers from what the workers know at this moment."""

    def __init__(self, workers: Sequence[Guarded]) -> None:
        self._workers = workers

    def routes(self) -> list[Route]:
        """What it answers."""
        return [
            Route("GET", "/api/v1/topics", self._topics, _READERS),
            Route("GET", "/api/v1/subscribers", self._subscribers, _READERS),
        ]

    async def _topics(self, request: Request) -> Response:
        topics, warnings = await self._look(request)
        shown = [{**topic, **_summary(topic["subscribers"])} for topic in topics]
        return Response.of({"topics": shown, "warnings": warnings})

    async def _subscribers(self, request: Request) -> Response:
        topics, warnings = await self._look(request)
        shown = [
            {
                "topic": topic["topic"],
                "partition": topic["partition"],
                "subscriber": each["name"],
                **{name: value for name, value in each.items() if name != "name"},
            }
            for topic in topics
            for each in topic["subscribers"]
        ]
        return Response.of({"subscribers": shown, "warnings": warnings})

    async def _look(self, request: Request) -> tuple[list[dict[str, Any]], list[str]]:
        """The topics that the request may see; a worker that does not answer is named."""
        asked = [child.ask("topics", _ANSWER_S) for child in self._workers]
        answers = list(zip(self._workers, await asyncio.gather(*asked), strict=True))
        seen = request.namespaces
        topics = [
            topic
            for _, answer in answers
            for topic in (answer or {}).get("topics", [])
            if seen is None or topic["namespace"] in seen
        ]
        silent = [child.title for child, answer in answers if "topics" not in (answer or {})]
        warnings = [f"{title} does not answer; its part is missing" for title in silent]
        return sorted(topics, key=lambda t: (t["topic"], t["partition"])), warnings


def _summary(subscribers: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all subscribers of a partition; the lag is that of the slowest."""
    return {
        "subscribers": len(subscribers),
        "lag_segments": max((each["lag_segments"] for each in subscribers), default=0),
        "lag_bundles": max((each["lag_bundles"] for each in subscribers), default=0),
    }
