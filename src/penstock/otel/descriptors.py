"""Descriptions of OTLP's messages that are not OTLP's own, but read and write the same bytes.

`ptars` turns protobuf messages into nested Arrow arrays and back. OTLP's values are recursive,
Arrow's types are not: here a value's array or map is `repeated bytes`, each the encoding of what
stood there. (Repeated, since a field that appears twice is merged, and two encodings put together
are the encoding of both merged.) Fields for profiles alone are left out, as OTLP asks.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import ptars
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pool import DescriptorPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.otel.signals import Signal

_OPAQUE: Final = {
    "AnyValue": {"array_value", "kvlist_value"},
    "Resource": {"entity_refs"},
}
_LEFT_OUT: Final = {
    "AnyValue": {"string_value_strindex"},
    "KeyValue": {"key_strindex"},
}


@cache
def flat_handler(signal: Signal) -> Any:
    """The `ptars` handler of the signal's requests, in which only nested values are opaque."""
    return _handler(signal.request_class.DESCRIPTOR, _flatten)


@cache
def writing_handler(signal: Signal) -> Any:
    """The same for writing. Doubles have presence, since -0.0 would be left out as a default."""
    return _handler(signal.request_class.DESCRIPTOR, _flatten_for_writing)


def _handler(descriptor: Any, edit: Callable[[DescriptorProto], None]) -> Any:
    edited = _edited(descriptor, edit)
    return ptars.HandlerPool([edited.file]).get_for_message(edited)


def _edited(descriptor: Any, edit: Callable[[DescriptorProto], None]) -> Any:
    """The descriptor of the same name in which `edit` has changed every message."""
    pool = DescriptorPool()
    for file in dict.fromkeys(_with_dependencies(descriptor.file)):
        copy = FileDescriptorProto()
        file.CopyToProto(copy)
        for message in copy.message_type:
            edit(message)
        pool.Add(copy)
    return pool.FindMessageTypeByName(descriptor.full_name)


def _with_dependencies(file: Any) -> Iterator[Any]:
    for needed in file.dependencies:
        yield from _with_dependencies(needed)
    yield file


def _flatten(message: DescriptorProto) -> None:
    for field in list(message.field):
        if field.name in _LEFT_OUT.get(message.name, ()):
            message.field.remove(field)
        elif field.name in _OPAQUE.get(message.name, ()):
            field.type = Field.TYPE_BYTES
            field.label = Field.LABEL_REPEATED
            field.ClearField("type_name")
            field.ClearField("oneof_index")


def _flatten_for_writing(message: DescriptorProto) -> None:
    _flatten(message)
    for field in message.field:
        can_be_absent = field.label == Field.LABEL_REPEATED or field.HasField("oneof_index")
        if field.type == Field.TYPE_DOUBLE and not can_be_absent:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")
    for nested in message.nested_type:
        _flatten_for_writing(nested)
