"""`/api/v1/openapi.json`: the API described for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock import __version__
from penstock.server.auth import Role
from penstock.server.web.routing import JSON, Response, Route

if TYPE_CHECKING:
    from penstock.server.web.routing import Request

PATH: Final = "/api/v1/openapi.json"
_ARROW: Final = "application/vnd.apache.arrow.stream"
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer"}
_WARNINGS: Final = {
    "type": "array",
    "items": _TEXT,
    "description": "What is missing from a partial answer, and what else is worth knowing.",
}
_PARTIAL: Final = {"type": "boolean", "description": "Whether something is missing."}
_MAY_LACK: Final = {
    "name": "partial",
    "in": "query",
    "schema": {"type": "boolean", "default": False},
    "description": "Answer without what cannot be read, and name it; else that is an error.",
}


def openapi_route() -> Route:
    """Where the description is."""
    return Route("GET", PATH, _answer, tuple(Role))


async def _answer(_: Request) -> Response:
    return Response.of(document())


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": __version__,
            "description": (
                "Every answer is JSON. Where tokens are used, `Authorization: Bearer TOKEN` is "
                "needed, and a token that may use some namespaces sees the rows of those alone; "
                "the header `x-penstock-namespace` narrows it to one."
            ),
        },
        "paths": dict(_paths()),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Status": _STATUS},
        },
        "security": [{}, {"token": []}],
    }


def _paths() -> list[tuple[str, Any]]:
    return [
        (
            "/api/v1/status",
            {"get": _operation("The workers and their state", _WORKERS)},
        ),
        ("/api/v1/flush", {"post": _operation("Seals everything now", _FLUSHED, 503)}),
        ("/api/v1/topics", {"get": _operation("Topics: offsets, sizes, lag", _TOPICS)}),
        (
            "/api/v1/subscribers",
            {"get": _operation("Subscribers and their progress", _SUBSCRIBERS)},
        ),
        ("/api/v1/query", {"post": _query()}),
        ("/api/v1/traces/{trace_id}", {"get": _trace()}),
        ("/api/v1/hot-snapshot", {"post": _snapshot()}),
        (PATH, {"get": _operation("What you read", {"type": "object"})}),
    ]


def _query() -> dict[str, Any]:
    found = _operation(
        "Asks one question over hot, warm and cold", _ROWS, 400, 413, 422, 429, 500, 501
    )
    found["responses"]["200"]["content"][_ARROW] = {
        "schema": {"type": "string", "format": "binary"}
    }
    tiers = {"type": "array", "items": {"enum": ["hot", "warm", "cold"]}}
    partial = _MAY_LACK["schema"]
    wanted = _object(sql=_TEXT, tiers=tiers, partial=partial)
    wanted |= {"required": ["sql"], "additionalProperties": False}
    found["requestBody"] = {"required": True, "content": {JSON: {"schema": wanted}}}
    return found


def _trace() -> dict[str, Any]:
    found = _operation("The spans of one trace", _TRACE, 400, 404, 422, 429, 500, 501)
    pattern = {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"}
    of_path = {"name": "trace_id", "in": "path", "required": True, "schema": pattern}
    found["parameters"] = [of_path, _MAY_LACK]
    return found


def _snapshot() -> dict[str, Any]:
    found = _operation("Writes the hot snapshot", _SNAPSHOT, 400, 500, 501, 503)
    found["parameters"] = [_MAY_LACK]
    return found


def _operation(summary: str, schema: dict[str, Any], *refusals: int) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {"description": "OK", "content": {JSON: {"schema": schema}}},
    }
    refused = {"$ref": "#/components/schemas/Status"}
    for status in sorted({401, 403, *refusals}):
        content = {JSON: {"schema": refused}}
        responses[str(status)] = {"description": _REFUSALS[status], "content": content}
    return {"summary": summary, "responses": responses}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


_REFUSALS: Final = {
    400: "The request cannot be answered as it is",
    401: "A token is needed",
    403: "The token may not",
    404: "Nothing is there",
    413: "The body is too long",
    422: "More rows, bytes, memory or time than a query may take",
    429: "Too many queries wait; Retry-After says when to come again",
    500: "Not all that belongs to the answer can be read; the message names it",
    501: "The server was installed without what this needs",
    503: "Not at present; Retry-After says when to come again",
}
_LIST: Final = {"type": "array", "items": {"type": "object"}}
_STATUS: Final = _object(code=_COUNT, message=_TEXT, details=_LIST)
_WORKERS: Final = _object(
    version=_TEXT,
    flight_port={"type": ["integer", "null"]},
    requests_per_second={"type": "number"},
    workers=_LIST,
)
_FLUSHED: Final = _object(flushed={"type": "boolean"}, errors={"type": "array", "items": _TEXT})
_TOPICS: Final = _object(topics=_LIST, warnings=_WARNINGS)
_SUBSCRIBERS: Final = _object(subscribers=_LIST, warnings=_WARNINGS)
_COLUMN: Final = _object(name=_TEXT, type=_TEXT)
_ROWS: Final = _object(
    columns={"type": "array", "items": _COLUMN},
    rows={
        "type": "array",
        "items": {"type": "array"},
        "description": (
            "A list a row. Integers beyond 2^53 - 1, NaN and infinities are strings; times are "
            "ISO 8601, bytes base64, maps and structs objects."
        ),
    },
    row_count=_COUNT,
    elapsed_ms={"type": "number"},
    warnings=_WARNINGS,
    partial=_PARTIAL,
)
_TRACE: Final = _object(
    trace_id=_TEXT,
    spans=_LIST,
    span_count=_COUNT,
    elapsed_ms={"type": "number"},
    warnings=_WARNINGS,
    partial=_PARTIAL,
)
_SNAPSHOT: Final = _object(
    snapshot_path=_TEXT,
    row_count=_COUNT,
    file_size_bytes=_COUNT,
    recent_cold_paths={"type": "array", "items": _TEXT},
    warnings=_WARNINGS,
    partial=_PARTIAL,
)
