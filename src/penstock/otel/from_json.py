"""OTLP's JSON becomes the same request in protobuf.

It is protobuf's JSON with OTLP's exceptions: trace and span ids are hexadecimal, enum values are
numbers, and fields that are not known are ignored. Names may also be as in the `.proto` files and
enum values names, as protobuf's own readers have it. A key that stands twice in one object, or once
by each of its names, is refused, as they do too: one of the two values would be acknowledged and
lost.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

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
_Object: Final = tuple
"""A JSON object is its pairs, in their order: a dict would have lost those whose key comes again
before anybody could look. Nothing else that `json` makes is one."""


class _Bad(Exception):
    """What keeps the request from being read; gets its path on the way out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path = ""


def _bad(expected: str, value: object) -> _Bad:
    """A value that is not what its field needs."""
    return _Bad(f"{_short(repr(_as_written(value)))} is not {expected}")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _as_written(value: object) -> object:
    if type(value) is _Object:
        return {key: _as_written(part) for key, part in value}
    return [_as_written(part) for part in value] if type(value) is list else value


class FromJson(NamedTuple):
    """A request that came as JSON."""

    data: bytes
    """In protobuf; `check_request` is still to be asked about it."""
    warning: str
    """That nothing was read, though there was something; empty where all is well."""


def request_from_json(signal: Signal, data: bytes, *, max_parts: int = 1_000_000) -> FromJson:
    """The same request in protobuf, all of what its known fields hold.

    Raises InvalidArgument, which says what is wrong, and refuses what has more than `max_parts`
    objects and arrays before it reads them.
    """
    if data.count(b"{") + data.count(b"[") > 2 * max_parts:
        raise InvalidArgument(f"the request has more than {2 * max_parts} objects and arrays")
    try:
        document = json.loads(data, object_pairs_hook=_Object)
        fields = _message(signal.request_class.DESCRIPTOR)(document)
        request = signal.request_class(**fields).SerializeToString()
        return FromJson(request, _warning(signal, [key for key, _ in document]))
    except _Bad as bad:
        place = bad.path.removeprefix(".") or "the request"
        raise InvalidArgument(f"{place}: {bad}") from None
    except RecursionError:
        raise InvalidArgument("the request is nested too deep") from None
    except (ValueError, OverflowError) as error:
        # Also numbers out of range and lone surrogates, found when the message is made.
        raise InvalidArgument(f"the request cannot be read: {error}") from None


def _warning(signal: Signal, keys: list[str]) -> str:
    """For a sender who has the wrong address: unknown fields are ignored, and nothing is left."""
    field = signal.request_class.DESCRIPTOR.fields[0]
    if not keys or field.name in keys or field.json_name in keys:
        return ""
    ignored = _short(json.dumps(keys[0]))
    return f"nothing was stored: {ignored} is ignored here, and there is no {field.json_name}"


@cache
def _message(descriptor: Descriptor) -> Convert:
    """What makes the arguments of a message out of a JSON object."""
    fields: dict[str, tuple[str, type | None, Convert]] = {}
    choices = {field.name for oneof in descriptor.oneofs for field in oneof.fields}

    def convert(value: Any) -> dict[str, Any]:
        if not fields:  # not before its first use: values hold values
            fields.update(_fields(descriptor))
        if type(value) is not _Object:
            raise _bad("an object", value)
        found = {}
        try:
            for key, part in value:
                if key in fields and part is not None:
                    name, ready, convert_part = fields[key]
                    if name in found:  # by the same name, or by its other
                        raise _Bad("is there twice, and one of the two would be lost")
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
            raise _bad("one value", chosen)


def _list(convert: Convert) -> Convert:
    def convert_list(values: Any) -> list[Any]:
        if type(values) is not list:
            raise _bad("an array", values)
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
        raise _bad("a string", value)
    return value


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _bad("true or false", value)
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
    raise _bad("a whole number", value)


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
            raise _bad("a number", value) from None
        if number - number == 0 or value in _DOUBLES:
            return number
    raise _bad("a number", value)


def _enum(values: Mapping[str, Any]) -> Convert:
    numbers = {name: value.number for name, value in values.items()}

    def convert(value: Any) -> int:
        return numbers[value] if type(value) is str and value in numbers else _integer(value)

    return convert


def _id(value: Any) -> bytes:
    try:
        return binascii.unhexlify(value)
    except (ValueError, TypeError):
        raise _bad("hexadecimal", value) from None


def _bytes(value: Any) -> bytes:
    text = _string(value).translate(_URL_SAFE)
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise _bad("base64", value) from None
