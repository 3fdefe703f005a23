"""Values within values: OTLP's arrays and maps as CBOR (RFC 8949), as OTAP stores them, and back.

An empty value is CBOR's `null`, the absent value of a key `undefined`; maps keep their order and
keys that appear twice. Doubles are always written with 64 bits, so that no bit of them is lost.
Reading takes what other writers of OTAP may have chosen: shorter floats, indefinite lengths, tags.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    KeyValue,
    KeyValueList,
)

from penstock.model.errors import InvalidBundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

UNDEFINED: Final = b"\xf7"

_UINT, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_NULL: Final = b"\xf6"
_FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}
_INDEFINITE: Final = 31
_MOST_DEPTH: Final = 48
"""Of items in items. Protobuf's parsers take 47 arrays in each other, and what they hold."""
_CACHED: Final = 1024
_CACHED_BYTES: Final = 1024


def _cached(convert: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Remembers what short values become: resources repeat theirs in every request."""
    remembering = lru_cache(_CACHED)(convert)
    return lambda data: remembering(data) if len(data) <= _CACHED_BYTES else convert(data)


@_cached
def array_to_cbor(encoded: bytes) -> bytes:
    """What an encoded `ArrayValue` holds."""
    out: list[bytes] = []
    _write_array(ArrayValue.FromString(encoded), out)
    return b"".join(out)


@_cached
def map_to_cbor(encoded: bytes) -> bytes:
    """What an encoded `KeyValueList` holds."""
    out: list[bytes] = []
    _write_map(KeyValueList.FromString(encoded), out)
    return b"".join(out)


@_cached
def cbor_to_array(data: bytes) -> bytes:
    """The encoded `ArrayValue` of a CBOR array."""
    value = _read_all(data)
    if not value.HasField("array_value"):
        raise InvalidBundle("a value of type 6 is not a CBOR array")
    return value.array_value.SerializeToString()


@_cached
def cbor_to_map(data: bytes) -> bytes:
    """The encoded `KeyValueList` of a CBOR map."""
    value = _read_all(data)
    if not value.HasField("kvlist_value"):
        raise InvalidBundle("a value of type 5 is not a CBOR map")
    return value.kvlist_value.SerializeToString()


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes((major << 5 | number,))
    for extra, (limit, form) in enumerate(((8, "B"), (16, "H"), (32, "I"), (64, "Q")), 24):
        if number < 1 << limit:
            return struct.pack(f">B{form}", major << 5 | extra, number)
    raise InvalidBundle(f"{number} is too large a number")


def _write(value: AnyValue, out: list[bytes]) -> None:
    match value.WhichOneof("value"):
        case "string_value":
            _write_text(value.string_value, out)
        case "bool_value":
            out.append(b"\xf5" if value.bool_value else b"\xf4")
        case "int_value":
            number = value.int_value
            out.append(_head(_UINT, number) if number >= 0 else _head(_NEGATIVE, -1 - number))
        case "double_value":
            out.append(struct.pack(">Bd", 0xFB, value.double_value))
        case "array_value":
            _write_array(value.array_value, out)
        case "kvlist_value":
            _write_map(value.kvlist_value, out)
        case "bytes_value":
            out += (_head(_BYTES, len(value.bytes_value)), value.bytes_value)
        case _:
            out.append(_NULL)


def _write_text(text: str, out: list[bytes]) -> None:
    encoded = text.encode()
    out += (_head(_TEXT, len(encoded)), encoded)


def _write_array(array: ArrayValue, out: list[bytes]) -> None:
    out.append(_head(_ARRAY, len(array.values)))
    for value in array.values:
        _write(value, out)


def _write_map(map_: KeyValueList, out: list[bytes]) -> None:
    out.append(_head(_MAP, len(map_.values)))
    for pair in map_.values:
        _write_text(pair.key, out)
        if pair.HasField("value"):
            _write(pair.value, out)
        else:
            out.append(UNDEFINED)


def _read_all(data: bytes) -> AnyValue:
    value, reader = AnyValue(), _Reader(data)
    try:
        reader.read(value, _MOST_DEPTH)
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise InvalidBundle(f"a nested value is not CBOR: {error}") from None
    if reader.at != len(data):
        raise InvalidBundle(f"{len(data) - reader.at} bytes follow a nested value")
    return value


class _Reader:
    """Reads one item after the other from CBOR into OTLP's values."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def read(self, value: AnyValue, depth: int) -> bool:
        """Reads an item into `value`, which is new; false for `undefined`."""
        if not depth:
            raise ValueError("nested too deep")
        major, extra = self._initial()
        match major:
            case 0:
                value.int_value = self._number(extra)
            case 1:
                value.int_value = -1 - self._number(extra)
            case 2:
                value.bytes_value = self._string(_BYTES, extra)
            case 3:
                value.string_value = self._string(_TEXT, extra).decode()
            case 4:
                value.array_value.SetInParent()
                for _ in self._items(extra):
                    self.read(value.array_value.values.add(), depth - 1)
            case 5:
                value.kvlist_value.SetInParent()
                for _ in self._items(extra):
                    self._read_pair(value.kvlist_value.values.add(), depth - 1)
            case 6:
                self._number(extra)  # what a tag says about its item, OTLP has no words for
                return self.read(value, depth - 1)
            case _:
                return self._read_simple(value, extra)
        return True

    def _read_pair(self, pair: KeyValue, depth: int) -> None:
        major, extra = self._initial()
        if major != _TEXT:
            raise ValueError("a key is not text")
        pair.key = self._string(_TEXT, extra).decode()
        pair.value.SetInParent()
        if not self.read(pair.value, depth):
            pair.ClearField("value")

    def _read_simple(self, value: AnyValue, extra: int) -> bool:
        if extra in (20, 21):
            value.bool_value = extra == 21
        elif extra in _FLOATS:
            (value.double_value,) = struct.unpack(_FLOATS[extra], self._take(1 << extra - 24))
        elif extra == 22:
            value.SetInParent()
        elif extra != 23:
            raise ValueError(f"simple value {extra}")
        return extra != 23

    def _initial(self) -> tuple[int, int]:
        byte = self._data[self.at]
        self.at += 1
        return byte >> 5, byte & 31

    def _number(self, extra: int) -> int:
        if extra < 24:
            return extra
        if extra > 27:
            raise ValueError(f"length code {extra}")
        return int.from_bytes(self._take(1 << extra - 24))

    def _take(self, count: int) -> bytes:
        piece = self._data[self.at : self.at + count]
        if len(piece) < count:
            raise IndexError("it ends too early")
        self.at += count
        return piece

    def _string(self, major: int, extra: int) -> bytes:
        if extra != _INDEFINITE:
            return self._take(self._number(extra))
        pieces = []
        while not self._at_break():
            kind, extra = self._initial()
            if kind != major or extra == _INDEFINITE:
                raise ValueError("a piece of a string is none")
            pieces.append(self._take(self._number(extra)))
        return b"".join(pieces)

    def _items(self, extra: int) -> Iterable[object]:
        if extra != _INDEFINITE:
            # Invariant: an item takes a byte or more, so that no count makes it run on and on.
            return range(min(self._number(extra), len(self._data) + 1))
        return iter(self._at_break, True)

    def _at_break(self) -> bool:
        found = self._data[self.at] == 0xFF
        self.at += found
        return found
