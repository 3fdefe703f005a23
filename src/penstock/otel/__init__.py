"""OTLP in its encodings, and the bundles of OTAP tables that it becomes.

    check_request        may it be stored? what of it may not?
    request_from_json    OTLP's JSON, as protobuf
    decode_requests      requests become bundles
    encode_bundle        and requests again

Importing the package costs nothing; each name brings what it needs with its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy import lazily

if TYPE_CHECKING:
    from penstock.otel.decode import DecodedRequests as DecodedRequests
    from penstock.otel.decode import decode_requests as decode_requests
    from penstock.otel.encode import encode_bundle as encode_bundle
    from penstock.otel.from_json import request_from_json as request_from_json
    from penstock.otel.signals import Signal as Signal
    from penstock.otel.validate import CheckedRequest as CheckedRequest
    from penstock.otel.validate import RequestLimits as RequestLimits
    from penstock.otel.validate import check_request as check_request
else:
    __getattr__ = lazily(
        __name__,
        {
            "decode": "DecodedRequests decode_requests",
            "encode": "encode_bundle",
            "from_json": "request_from_json",
            "signals": "Signal",
            "validate": "CheckedRequest RequestLimits check_request",
        },
    )

__all__ = [
    "CheckedRequest",
    "DecodedRequests",
    "RequestLimits",
    "Signal",
    "check_request",
    "decode_requests",
    "encode_bundle",
    "request_from_json",
]
