"""OTLP in its encodings, and the bundles of OTAP tables that it becomes.

    check_request        may it be stored? what of it may not?
    request_from_json    OTLP's JSON, as protobuf
    decode_requests      requests become bundles
    encode_bundle        and requests again

Importing the package costs nothing; each name brings what it needs with its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.otel.decode import DecodedRequests as DecodedRequests
    from penstock.otel.decode import decode_requests as decode_requests
    from penstock.otel.encode import encode_bundle as encode_bundle
    from penstock.otel.from_json import request_from_json as request_from_json
    from penstock.otel.signals import Signal as Signal
    from penstock.otel.validate import CheckedRequest as CheckedRequest
    from penstock.otel.validate import RequestLimits as RequestLimits
    from penstock.otel.validate import check_request as check_request

_HOMES = {
    "CheckedRequest": "validate",
    "DecodedRequests": "decode",
    "RequestLimits": "validate",
    "Signal": "signals",
    "check_request": "validate",
    "decode_requests": "decode",
    "encode_bundle": "encode",
    "request_from_json": "from_json",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """Imports a name with its first use."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"penstock.otel.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'penstock.otel' has no attribute {name!r}")
