"""Requests with something in every field, and what is needed to compare requests."""

from __future__ import annotations

import struct
from random import Random
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor

from penstock.otel import decode_requests

if TYPE_CHECKING:
    from penstock.model.bundle import Bundle
    from penstock.otel import Signal

LEFT_OUT = {"string_value_strindex", "key_strindex"}
"""For profiles alone: OTLP asks receivers of other signals to take no notice of them."""
ID_BYTES = {"trace_id": 16, "span_id": 8, "parent_span_id": 8}
MOST_DEPTH = 3

_TEXTS = ("", "a", "service.name", "é∂✓🜁", "x" * 40, "\0", "GET /cart")
_INTEGERS = (0, 1, 7, 255, 2**31 - 1)
_DOUBLES = (0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 5e-324, 1.8e308)
_LIMITS = {
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (2**63, 2**64 - 1),
    FieldDescriptor.TYPE_FIXED64: (2**63, 2**64 - 1),
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_ENUM: (-1, 2),
    FieldDescriptor.TYPE_UINT32: (2**31, 2**32 - 1),
    FieldDescriptor.TYPE_FIXED32: (2**31, 2**32 - 1),
}


def full_request(signal: Signal, seed: int = 0, *, share: float = 1.0) -> Any:
    """A request with a random value in that share of all fields; 1.0: in all."""
    request = signal.request_class()
    _fill(request, Random(seed), share, 0)
    return request


def encoded(request: Any) -> bytes:
    """The request as it comes in."""
    data: bytes = request.SerializeToString()
    return data


def canonical(signal: Signal, *parts: bytes) -> bytes:
    """One encoding for equal requests, in which NaNs can be compared; several are one."""
    request = signal.request_class.FromString(b"".join(parts))
    return request.SerializeToString(deterministic=True)


def bundle_of(signal: Signal, *requests: Any) -> Bundle:
    """The one bundle that the requests become."""
    [decoded] = decode_requests(signal, [encoded(request) for request in requests])
    assert decoded.bundle is not None, decoded.problem
    return decoded.bundle


def rows(bundle: Bundle, slot: int) -> list[dict[str, Any]]:
    """The rows of a table, with times and durations as numbers."""
    return [_plain(row) for row in bundle[slot].to_struct_array()]


def piece(tag: int, contents: bytes) -> bytes:
    """A field with its length, as it is on the wire; the tag has one byte."""
    head, length = bytes([tag]), len(contents)
    while length > 0x7F:
        head += bytes([length & 0x7F | 0x80])
        length >>= 7
    return head + bytes([length]) + contents


def record_piece(contents: bytes) -> bytes:
    """A request of any signal with one record."""
    return piece(0x0A, piece(0x12, piece(0x12, contents)))


def _plain(value: Any) -> Any:
    if hasattr(value, "keys"):
        return {key: _plain(value[key]) for key in value} if value.is_valid else None
    return value.value if hasattr(value, "value") and value.is_valid else value.as_py()


def _fill(message: Any, random: Random, share: float, depth: int) -> None:
    for field in _chosen(message.DESCRIPTOR, random, depth):
        if random.random() < share or field.name.startswith(("resource_", "scope_")):
            _set(message, field, random, share, depth)


def _chosen(descriptor: Any, random: Random, depth: int) -> list[FieldDescriptor]:
    """All fields, but one of each choice."""
    fields = [field for field in descriptor.fields if field.name not in LEFT_OUT]
    if depth >= MOST_DEPTH and descriptor.name == "AnyValue":
        fields = [field for field in fields if field.message_type is None]
    chosen = [field for field in fields if field.containing_oneof is None]
    for oneof in descriptor.oneofs:
        names = {field.name for field in oneof.fields}
        chosen.append(random.choice([field for field in fields if field.name in names]))
    return chosen


def _set(message: Any, field: FieldDescriptor, random: Random, share: float, depth: int) -> None:
    part = getattr(message, field.name)
    count = random.randint(1 if share == 1.0 else 0, 3)
    if field.message_type is None:
        if field.is_repeated:
            part.extend(_scalar(field, random) for _ in range(count))
        else:
            setattr(message, field.name, _scalar(field, random))
        return
    depth += field.message_type.name in {"ArrayValue", "KeyValueList"}
    if field.is_repeated:
        for _ in range(count):
            _fill(part.add(), random, share, depth)
    else:
        part.SetInParent()
        _fill(part, random, share, depth)


def _scalar(field: FieldDescriptor, random: Random) -> Any:
    if field.name in ID_BYTES:
        return random.randbytes(ID_BYTES[field.name])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return random.randbytes(random.randint(0, 9))
    if field.type == FieldDescriptor.TYPE_STRING:
        return random.choice(_TEXTS)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return random.random() < 0.5
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        odd_nan = struct.unpack("<d", b"\1\2\3\4\5\6\xf8\xff")[0]
        return random.choice((*_DOUBLES, odd_nan, random.gauss(0, 1e6)))
    return random.choice((*_INTEGERS, *_LIMITS[field.type]))
