"""OTLP's JSON becomes the same request in protobuf.

It is protobuf's JSON with OTLP's exceptions: trace and span ids are hexadecimal, enum values are
numbers, and fields that are not known are ignored. Names may also be as in the `.proto` files and
enum values names, as protobuf's own readers have it.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.descriptor import Descriptor

    from penstock.otel.signals import Signal

    Convert: TypeAlias = Callable[[Any], Any]

_IDS: Final = {"trace_id", "span_id", "parent_span_id"}
_DOUBLES: Final = {"NaN", "Infinity", "-Infinity"}
_DOUBLE, _BOOL, _STRING, _MESSAGE, _BYTES, _ENUM = 1, 8, 9, 11, 12, 14
_INTEGERS: Final = (3, 4, 5, 6, 7, 13, _ENUM, 15, 16, 17, 18)
_READY: Final = {_DOUBLE: float, _BOOL: bool, _STRING: str, **dict.fromkeys(_INTEGERS, int)}
_URL_SAFE: Final = str.maketrans("-_", "+/")
_SHOWN: Final = 40


class _Bad(Exception):
    """A value that is not what its field needs; gets its path on the way out."""

    def __init__(self, expected: str, value: object) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        super().__init__(f"{shown} is not {expected}")
        self.path = ""


def request_from_json(signal: Signal, data: bytes, *, max_parts: int = 1_000_000) -> bytes:
    """The request in protobuf; `check_request` is still to be asked about it.

    Raises InvalidArgument, which says what is wrong, and refuses what has more than `max_parts`
    objects and arrays before it reads them.
    """
    if data.count(b"{") + data.count(b"[") > 2 * max_parts:
        raise InvalidArgument(f"the request has more than {2 * max_parts} objects and arrays")
    try:
        fields = _message(signal.request_class.DESCRIPTOR)(json.loads(data))
        return signal.request_class(**fields).SerializeToString()
    except _Bad as bad:
        place = bad.path.removeprefix(".") or "the request"
        raise InvalidArgument(f"{place}: {bad}") from None
    except RecursionError:
        raise InvalidArgument("the request is nested too deep") from None
    except (ValueError, OverflowError) as error:
        # Also numbers out of range and lone surrogates, found when the message is made.
        raise InvalidArgument(f"the request cannot be read: {error}") from None


@cache
def _message(descriptor: Descriptor) -> Convert:
    """What makes the arguments of a message out of a JSON object."""
    fields: dict[str, tuple[str, type | None, Convert]] = {}
    choices = {field.name for oneof in descriptor.oneofs for field in oneof.fields}

    def convert(value: Any) -> dict[str, Any]:
        if not fields:  # not before its first use: values hold values
            fields.update(_fields(descriptor))
        if type(value) is not dict:
            raise _Bad("an object", value)
        found = {}
        try:
            for key, part in value.items():
                if key in fields and part is not None:
                    name, ready, convert_part = fields[key]
                    found[name] = part if type(part) is ready else convert_part(part)
        except _Bad as bad:
            bad.path = f".{key}{bad.path}"
            raise
        if len(found) > 1 and choices:
            _check_choice(descriptor, found)
        return found

    return convert


def _fields(descriptor: Descriptor) -> dict[str, tuple[str, type | None, Convert]]:
    """By key: the field's name, the type that needs no conversion, and the conversion."""
    return {
        key: (field.name, None, _list(_value(field)))
        if field.is_repeated
        else (field.name, _READY.get(field.type), _value(field))
        for field in descriptor.fields
        for key in (field.name, field.json_name)
    }


def _check_choice(descriptor: Descriptor, found: Mapping[str, Any]) -> None:
    for oneof in descriptor.oneofs:
        chosen = [field.json_name for field in oneof.fields if field.name in found]
        if len(chosen) > 1:
            raise _Bad("one value", chosen)


def _list(convert: Convert) -> Convert:
    def convert_list(values: Any) -> list[Any]:
        if type(values) is not list:
            raise _Bad("an array", values)
        found: list[Any] = []
        try:
            for value in values:
                found.append(convert(value))  # noqa: PERF401  # how many tells where it failed
        except _Bad as bad:
            bad.path = f"[{len(found)}]{bad.path}"
            raise
        return found

    return convert_list


def _value(field: Any) -> Convert:
    if field.type == _MESSAGE:
        return _message(field.message_type)
    if field.type == _BYTES:
        return _id if field.name in _IDS else _bytes
    if field.type == _ENUM:
        return _enum(field.enum_type.values_by_name)
    return {_DOUBLE: _double, _BOOL: _bool, _STRING: _string}.get(field.type, _integer)


def _string(value: Any) -> str:
    if type(value) is not str:
        raise _Bad("a string", value)
    return value


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _Bad("true or false", value)
    return value


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    try:
        if type(value) is str:
            return int(value) if value.removeprefix("-").isdecimal() else _whole(float(value))
        if type(value) is float:
            return _whole(value)
    except (ValueError, OverflowError):
        pass
    raise _Bad("a whole number", value)


def _whole(value: float) -> int:
    if not value.is_integer():
        raise ValueError
    return int(value)


def _double(value: Any) -> float:
    if type(value) in (float, int):
        return float(value)
    if type(value) is str:
        try:
            number = float(value)
        except ValueError:
            raise _Bad("a number", value) from None
        if number - number == 0 or value in _DOUBLES:
            return number
    raise _Bad("a number", value)


def _enum(values: Mapping[str, Any]) -> Convert:
    numbers = {name: value.number for name, value in values.items()}

    def convert(value: Any) -> int:
        return numbers[value] if type(value) is str and value in numbers else _integer(value)

    return convert


def _id(value: Any) -> bytes:
    try:
        return binascii.unhexlify(value)
    except (ValueError, TypeError):
        raise _Bad("hexadecimal", value) from None


def _bytes(value: Any) -> bytes:
    text = _string(value).translate(_URL_SAFE)
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise _Bad("base64", value) from None
