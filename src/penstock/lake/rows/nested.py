"""Values that have no text of their own: arrays and maps as JSON, bytes as base64.

JSON has no bytes either (base64 again), nor NaN and infinities: they are strings, as in OTLP's own
JSON. Of keys that appear twice in a map the last one counts.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.proto.common.v1.common_pb2 import ArrayValue, KeyValueList

from penstock.otel.cbor import cbor_to_array, cbor_to_map

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue

_CACHED: Final = 1024
_CACHED_BYTES: Final = 1024


def _cached(text: Callable[[bytes], str]) -> Callable[[bytes], str]:
    """Remembers the text of short values: resources repeat theirs in every bundle."""
    remembering = lru_cache(_CACHED)(text)
    return lambda cbor: remembering(cbor) if len(cbor) <= _CACHED_BYTES else text(cbor)


def base64_text(data: bytes) -> str:
    """With padding, on one line."""
    return b64encode(data).decode()


@_cached
def array_text(cbor: bytes) -> str:
    """The JSON of an array; InvalidBundle where there is none in it."""
    return _text(_array(ArrayValue.FromString(cbor_to_array(cbor))))


@_cached
def map_text(cbor: bytes) -> str:
    """The JSON of a map; InvalidBundle where there is none in it."""
    return _text(_map(KeyValueList.FromString(cbor_to_map(cbor))))


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _array(array: ArrayValue) -> list[Any]:
    return [_value(value) for value in array.values]


def _map(map_: KeyValueList) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in map_.values}


def _value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "bytes_value":
            return base64_text(value.bytes_value)
        case "double_value":
            return _number(value.double_value)
        case "array_value":
            return _array(value.array_value)
        case "kvlist_value":
            return _map(value.kvlist_value)
        case None:
            return None
        case kind:
            return getattr(value, kind)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
