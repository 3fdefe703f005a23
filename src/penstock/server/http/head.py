"""The head of an HTTP request, as the applications read it."""

from __future__ import annotations

from typing import Any, Final

from penstock.server.auth import NAMESPACE_HEADER
from penstock.server.refusals import Cause, Refusal

Headers = dict[str, str]
"""By lower-case name. Bytes read as Latin-1."""
_SINGLE: Final = frozenset({"authorization", "content-type", NAMESPACE_HEADER})


def headers_of(scope: dict[str, Any]) -> Headers:
    """Lines of one name are one list; Refusal where two of them would contradict each other."""
    headers: Headers = {}
    for line, value in scope["headers"]:
        name, text = line.decode("latin-1").lower(), value.decode("latin-1")
        if name in headers:
            if name in _SINGLE:
                raise Refusal(Cause.INVALID, f"the header {name} is there twice")
            text = f"{headers[name]}, {text}"
        headers[name] = text
    return headers


def kind_in(scope: dict[str, Any]) -> str:
    """The content type without its parameters; of several the last."""
    kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
    return str(kind).partition(";")[0].strip().lower()


def holds_body_back(scope: dict[str, Any]) -> bool:
    """Whether the client waits to hear if its body is wanted; one of HTTP/1.0 never does."""
    is_old = scope.get("http_version") == "1.0"
    return not is_old and any(name == b"expect" for name, _ in scope["headers"])


def announces_body(headers: Headers) -> bool:
    """Whether the client said how its body ends, an empty one too."""
    return "content-length" in headers or "transfer-encoding" in headers
