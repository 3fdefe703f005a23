"""Large requests, looked at before they are parsed.

A parser takes a hundred bytes or more for a record that is two bytes of a request, so that 4 MiB
can become hundreds. What passes here either takes a parser no more than about 25 times its own
size, or has a limited number of parts.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from penstock.model.errors import InvalidArgument
from penstock.model.slots import MAX_ROOT_RECORDS
from penstock.otel.parts import count_parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.otel.signals import Signal

_PART_BYTES: Final = 2
"""A part has a tag and a length; what is shorter than its most parts cannot have more."""
_TINY: Final = bytes(range(6))
_TINY_SHARE: Final = 16


def check_large(signal: Signal, data: bytes, most_records: int, most_parts: int) -> None:
    """Refuses what would take too much memory to parse. Malformed data is a DecodeError."""
    if len(data) > _PART_BYTES * most_parts and may_be_dense(data):
        count_parts(signal, data, most_parts)
    # Here a record takes 16 bytes, and there are no more than a parser can have memory for.
    level = _level_class()
    resources = _inside([level.FromString(data)], "first", "resources", MAX_ROOT_RECORDS)
    scopes = _inside(resources, "second", "scopes", MAX_ROOT_RECORDS)
    what = signal.field_names[2].replace("_", " ")
    check_count(what, sum(len(scope.second) for scope in scopes), most_records)


def check_count(what: str, count: int, most: int) -> None:
    """Raises InvalidArgument where there are more than the most."""
    if count > most:
        raise InvalidArgument(f"the request holds too many {what}; the most is {most}")


def _inside(levels: Iterable[Any], name: str, what: str, most: int) -> list[Any]:
    """What the levels hold, as levels themselves; counted first."""
    lists = [getattr(level, name) for level in levels]
    check_count(what, sum(map(len, lists)), most)
    parse = _level_class().FromString
    return [parse(encoded) for each in lists for encoded in each]


def may_be_dense(data: bytes) -> bool:
    """Whether much of it can be parts of less than eight bytes, each with a length of 0 to 5.

    However such a length is written, it ends with a byte of 0 to 5. Text has few of those.
    """
    tiny = len(data) - len(data.translate(None, _TINY))
    return tiny > len(data) // _TINY_SHARE


@cache
def _level_class() -> Any:
    """A message of which all that is known is that its fields 1 and 2 are made of bytes.

    It reads requests (1: resources), resources (2: scopes) and scopes (2: records) alike.
    """
    file = FileDescriptorProto(name="penstock/level.proto", syntax="proto3")
    level = file.message_type.add(name="Level")
    for number, name in enumerate(("first", "second"), 1):
        level.field.add(name=name, number=number, label=Field.LABEL_REPEATED, type=Field.TYPE_BYTES)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("Level"))
