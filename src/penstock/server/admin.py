"""The web port: health, metrics, and the first of the API."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from penstock.pipeline.flush.progress import read_progress
from penstock.server.auth import NAMESPACE_HEADER
from penstock.server.exposition import merge, pipeline_page
from penstock.server.refusals import Cause, Refusal, as_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.server.auth import Gate
    from penstock.server.child import Child
    from penstock.server.config import Config

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON: Final = "application/json"
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Probes need no token; they learn no more than well or not."""


class Admin:
    """An ASGI application in the supervisor."""

    def __init__(self, config: Config, children: Sequence[Child], gate: Gate) -> None:
        self._config = config
        self._children = children
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """ASGI."""
        if scope["type"] != "http":
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        try:
            if scope["path"] not in OPEN_PATHS:
                self._gate.refresh()
                self._gate.admit(headers.get("authorization"), headers.get(NAMESPACE_HEADER))
            status, kind, body = await self._answer(scope["method"], scope["path"])
        except Refusal as refusal:
            status, kind = refusal.cause.http_status, JSON
            body = json.dumps(as_json(refusal.status())).encode()
        length = str(len(body)).encode()
        head = [(b"content-type", kind.encode()), (b"content-length", length)]
        head += [(name, value) for name, value in _EXTRA.get(status, ())]
        if status == Cause.WRONG_METHOD.http_status:
            head.append((b"allow", _wanted(scope["path"]).encode()))
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send(
            {"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body}
        )

    async def _answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        wanted = _wanted(path)
        if path not in _PATHS:
            raise Refusal(Cause.NOT_FOUND, f"nothing is at {path}")
        if method != wanted and not (wanted == "GET" and method == "HEAD"):
            raise Refusal(Cause.WRONG_METHOD, f"{path} takes {wanted}")
        return await _PATHS[path](self)

    async def _health(self) -> tuple[int, str, bytes]:
        problems = await self._problems()
        body = {"healthy": not problems, "problems": problems}
        return (503 if problems else 200), JSON, json.dumps(body).encode()

    async def _ready(self) -> tuple[int, str, bytes]:
        ready = all(child.ready.is_set() for child in self._children)
        return (200 if ready else 503), JSON, json.dumps({"ready": ready}).encode()

    async def _metrics(self) -> tuple[int, str, bytes]:
        pages = [report["metrics"] for report in await self._reports("report") if report]
        progress = await asyncio.to_thread(read_progress, self._config.data_dir)
        return 200, TEXT, merge([*pages, pipeline_page(progress)]).encode()

    async def _status(self) -> tuple[int, str, bytes]:
        reports = [report for report in await self._reports("report") if report]
        workers = [
            {k: v for k, v in report.items() if k not in ("id", "metrics")} for report in reports
        ]
        return 200, JSON, json.dumps({"workers": workers}).encode()

    async def _flush(self) -> tuple[int, str, bytes]:
        reports = await self._reports("flush", 60.0)
        errors = [r.get("error", "") if r else "no answer" for r in reports]
        failed = [error for error in errors if error]
        return (
            (503 if failed else 200),
            JSON,
            json.dumps({"flushed": not failed, "errors": failed}).encode(),
        )

    async def _reports(self, what: str, timeout_s: float = 5.0) -> list[dict[str, Any] | None]:
        return list(await asyncio.gather(*(c.ask(what, timeout_s) for c in self._children)))

    async def _problems(self) -> list[str]:
        problems: list[str] = []
        for child, report in zip(self._children, await self._reports("report"), strict=True):
            if report is None or not child.ready.is_set():
                problems.append(f"worker {child.number} does not answer")
                continue
            problems += report.get("failures", [])
            if report.get("disk_full"):
                problems.append("the disk is full")
        return problems


def _wanted(path: str) -> str:
    return "POST" if path == "/api/v1/flush" else "GET"


_EXTRA: Final = {
    401: [(b"www-authenticate", b"Bearer")],
    503: [(b"retry-after", b"5")],
}
_PATHS: Final = {
    "/healthz": Admin._health,  # noqa: SLF001 - its own
    "/readyz": Admin._ready,  # noqa: SLF001
    "/metrics": Admin._metrics,  # noqa: SLF001
    "/api/v1/status": Admin._status,  # noqa: SLF001
    "/api/v1/flush": Admin._flush,  # noqa: SLF001
}
