"""Hypothesis strategies for OTLP requests with everything that the official classes have."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st

from tests.otel.samples import ID_BYTES, LEFT_OUT

if TYPE_CHECKING:
    from penstock.otel import Signal

MOST_ITEMS = 3
MOST_DEPTH = 4

_INT32 = st.integers(-(2**31), 2**31 - 1)
_UINT32 = st.integers(0, 2**32 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_UINT64 = st.integers(0, 2**64 - 1)
_DOUBLE = st.floats() | st.sampled_from(
    [-0.0, 5e-324, struct.unpack("<d", b"\1\2\3\4\5\6\xf8\xff")[0]]
)
SCALARS = {
    FieldDescriptor.TYPE_DOUBLE: _DOUBLE,
    FieldDescriptor.TYPE_INT64: _INT64,
    FieldDescriptor.TYPE_SFIXED64: _INT64,
    FieldDescriptor.TYPE_UINT64: _UINT64,
    FieldDescriptor.TYPE_FIXED64: _UINT64,
    FieldDescriptor.TYPE_INT32: _INT32,
    FieldDescriptor.TYPE_SINT32: _INT32,
    FieldDescriptor.TYPE_ENUM: st.integers(0, 5) | _INT32,
    FieldDescriptor.TYPE_UINT32: _UINT32,
    FieldDescriptor.TYPE_FIXED32: _UINT32,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: st.text(max_size=6),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=6),
}


def requests(signal: Signal) -> st.SearchStrategy[Any]:
    """Whole requests: some fields set, some not, ids mostly of the right length."""
    return _messages(signal.request_class)


@st.composite
def _messages(draw: st.DrawFn, class_: type) -> Any:
    message = class_()
    _fill(draw, message, 0)
    return message


def _fill(draw: st.DrawFn, message: Any, depth: int) -> None:
    descriptor: Descriptor = message.DESCRIPTOR
    fields = [field for field in descriptor.fields if field.name not in LEFT_OUT]
    if descriptor.name == "AnyValue" and depth > MOST_DEPTH:
        fields = [field for field in fields if field.message_type is None]
    chosen = set(draw(st.lists(st.sampled_from(fields), unique=True)) if fields else ())
    for field in fields:
        if field in chosen or _is_container(field):
            _set(draw, message, field, depth)


def _is_container(field: FieldDescriptor) -> bool:
    """Whether it leads to the records, which few requests would have otherwise."""
    return field.is_repeated and field.name.startswith(("resource_", "scope_"))


def _set(draw: st.DrawFn, message: Any, field: FieldDescriptor, depth: int) -> None:
    if field.is_repeated:
        items = getattr(message, field.name)
        for _ in range(draw(st.integers(0, MOST_ITEMS))):
            if field.message_type is not None:
                _fill(draw, items.add(), depth + _levels(field))
            else:
                items.append(draw(SCALARS[field.type]))
    elif field.message_type is not None:
        part = getattr(message, field.name)
        part.SetInParent()
        _fill(draw, part, depth + _levels(field))
    else:
        setattr(message, field.name, draw(_scalars(field)))


def _levels(field: FieldDescriptor) -> int:
    return field.message_type.name in {"ArrayValue", "KeyValueList"}


def _scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    width = ID_BYTES.get(field.name)
    if width is None:
        return SCALARS[field.type]
    right = st.binary(min_size=width, max_size=width)
    return right | st.just(bytes(width)) | st.binary(max_size=20)
