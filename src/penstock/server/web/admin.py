"""What the workers know of themselves: health, metrics, status, topics and subscribers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from penstock import __version__
from penstock.children.guarding import ANSWER_S
from penstock.client.server_file import running_server
from penstock.pipeline.flush.progress import read_progress
from penstock.server.auth import Role
from penstock.server.web.exposition import children_page, merge, pipeline_page
from penstock.server.web.routing import Response, Route

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.children.guarding import Guarded
    from penstock.server.configuration.config import Config
    from penstock.server.web.routing import Request

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_FLUSH_S: Final = 60.0
_ANSWER_S: Final = 5.0
_READERS: Final = (Role.QUERY, Role.SUBSCRIBE, Role.ADMIN)
_FOR_ALL: Final = ("worker", "pressure", "disk_full")
"""What anybody may know of a worker: why requests are put off, and nothing of others' data."""


class Admin:
    """Answers from what the workers report."""

    def __init__(
        self,
        config: Config,
        workers: Sequence[Guarded],
        flight: Guarded | None = None,
        query_restarts: Callable[[], int] = lambda: 0,
    ) -> None:
        self._config = config
        self._flight = flight
        self._query_restarts = query_restarts
        self._workers = workers

    def routes(self) -> list[Route]:
        """Probes need no token; they learn no more than well or not."""
        return [
            Route("GET", "/healthz", self._health, tuple(Role), is_open=True),
            Route("GET", "/readyz", self._ready, tuple(Role), is_open=True),
            Route("GET", "/metrics", self._metrics, (Role.ADMIN,)),
            Route("GET", "/api/v1/status", self._status, tuple(Role)),
            Route("POST", "/api/v1/flush", self._flush, (Role.ADMIN,)),
        ]

    async def _health(self, request: Request) -> Response:
        problems = await self._problems()
        document: dict[str, Any] = {"healthy": not problems}
        if request.caller.oversees:
            document["problems"] = problems
        return Response.of(document, 503 if problems else 200)

    async def _ready(self, _: Request) -> Response:
        ready = all(child.ready.is_set() for child in self._workers)
        return Response.of({"ready": ready}, 200 if ready else 503)

    async def _metrics(self, _: Request) -> Response:
        reports = [report for report in await self._reports("metrics", ANSWER_S) if report]
        progress = await asyncio.to_thread(read_progress, self._config.data_dir)
        own = [children_page(self._restarts(reports)), pipeline_page(progress)]
        page = merge([*(report["metrics"] for report in reports), *own])
        return Response(200, page.encode(), TEXT)

    async def _status(self, request: Request) -> Response:
        reports = [report for report in await self._reports("report") if report]
        about: dict[str, Any] = {"version": __version__, "flight_port": await self._flight_port()}
        if not request.caller.oversees:
            shown = [{k: v for k, v in report.items() if k in _FOR_ALL} for report in reports]
            return Response.of({**about, "workers": shown})
        workers = [{k: v for k, v in report.items() if k != "id"} for report in reports]
        rates = [worker.get("rates", {}).get("requests_per_second", 0.0) for worker in workers]
        about["requests_per_second"] = round(sum(rates), 3)
        return Response.of({**about, "workers": workers})

    async def _flight_port(self) -> int | None:
        """For who knows the web port only; None where a queue takes what comes."""
        if self._flight is None:
            return None
        server = await asyncio.to_thread(running_server, self._config.data_dir)
        return server.flight_port if server is not None else None

    async def _flush(self, _: Request) -> Response:
        reports = await self._reports("flush", _FLUSH_S)
        errors = [r.get("error", "") if r else "no answer" for r in reports]
        failed = [error for error in errors if error]
        return Response.of({"flushed": not failed, "errors": failed}, 503 if failed else 200)

    def _restarts(self, reports: list[dict[str, Any]]) -> Counter[str]:
        restarts = Counter({"worker": sum(child.restarts for child in self._workers)})
        restarts["flight"] = 0 if self._flight is None else self._flight.restarts
        restarts["query"] = self._query_restarts()
        for report in reports:
            restarts.update(report.get("restarts", {}))
        return restarts

    async def _reports(
        self, what: str, timeout_s: float = _ANSWER_S
    ) -> list[dict[str, Any] | None]:
        return list(await asyncio.gather(*(c.ask(what, timeout_s) for c in self._workers)))

    async def _problems(self) -> list[str]:
        problems: list[str] = []
        for child, report in zip(self._workers, await self._reports("report"), strict=True):
            if report is None or not child.ready.is_set():
                problems.append(f"{child.title} does not answer")
                continue
            problems += report.get("failures", [])
            if report.get("disk_full"):
                problems.append("the disk is full")
            elif report.get("pressure"):
                problems.append(f"{child.title} puts requests off: {report['pressure']}")
        if self._flight is not None and await self._flight.ask("ping", _ANSWER_S) is None:
            problems.append(f"{self._flight.title} does not answer")
        return list(dict.fromkeys(problems))  # what ails all of them is said once


class TopicsApi:
    """Answers from what the workers know at this moment."""

    def __init__(self, workers: Sequence[Guarded]) -> None:
        self._workers = workers

    def routes(self) -> list[Route]:
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
