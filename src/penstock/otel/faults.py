"""Says where a message is malformed. The parsers say only that it is.

A walk over the bytes, as slow as Python is, and therefore not to the end of a long message.
"""

from __future__ import annotations

from typing import Any, Final

_MOST_FIELDS: Final = 20_000
_MOST_DEPTH: Final = 100
_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
_WIDTHS: Final = {_FIXED64: 8, _FIXED32: 4}
_STRING: Final = 9


class _Fault(Exception):
    """What is wrong, and with which byte."""


def find_fault(descriptor: Any, data: bytes) -> str | None:
    """What is wrong with the message, for people; None where nothing was found."""
    try:
        _Walk(data).message(descriptor, 0, len(data), "", _MOST_DEPTH)
    except _Fault as fault:
        return str(fault)
    return None


class _Walk:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = _MOST_FIELDS

    def message(self, descriptor: Any, at: int, end: int, path: str, depth: int) -> None:
        """Looks at the fields of one message."""
        counts: dict[str, int] = {}
        while at < end and self._left > 0:
            self._left -= 1
            key, value_at = self._varint(at, end, path)
            number, wire = key >> 3, key & 7
            if not number:
                raise _Fault(f"{_place(path)}: byte {at} begins a field with the number 0")
            field = descriptor.fields_by_number.get(number)
            name = self._name(field, number, path, counts)
            start, at = self._value(wire, value_at, end, name)
            if wire == _BYTES and field is not None:
                self._contents(field, start, at, name, depth)

    def _name(self, field: Any, number: int, path: str, counts: dict[str, int]) -> str:
        name = field.name if field is not None else f"field {number}"
        if field is not None and field.is_repeated:
            counts[name] = counts.get(name, -1) + 1
            name += f"[{counts[name]}]"
        return f"{path}.{name}" if path else name

    def _value(self, wire: int, at: int, end: int, name: str) -> tuple[int, int]:
        """Where the value of a field begins and ends."""
        if wire == _VARINT:
            return at, self._varint(at, end, name)[1]
        if wire in _WIDTHS:
            return at, self._within(at + _WIDTHS[wire], end, name)
        if wire == _BYTES:
            length, at = self._varint(at, end, name)
            return at, self._within(at + length, end, name)
        if wire in (_GROUP, _GROUP_END):
            raise _Fault(f"{name}: byte {at - 1} begins or ends a group, which OTLP does not have")
        raise _Fault(f"{name}: byte {at - 1} is of no wire type")

    def _contents(self, field: Any, start: int, end: int, name: str, depth: int) -> None:
        if field.message_type is not None:
            if depth <= 1:
                raise _Fault(f"messages are nested more than {_MOST_DEPTH} deep")
            self.message(field.message_type, start, end, name, depth - 1)
        elif field.type == _STRING:
            try:
                self._data[start:end].decode()
            except UnicodeDecodeError as error:
                raise _Fault(f"{name}: byte {start + error.start} is not UTF-8") from None

    def _varint(self, at: int, end: int, path: str) -> tuple[int, int]:
        number = 0
        for shift in range(0, 70, 7):
            if at >= end:
                raise _Fault(f"{_place(path)} ends in the middle of a field, at byte {end}")
            byte = self._data[at]
            number |= (byte & 0x7F) << shift
            at += 1
            if byte < 0x80:
                return number, at
        raise _Fault(f"{_place(path)}: a number of more than ten bytes ends at byte {at}")

    def _within(self, at: int, end: int, name: str) -> int:
        if at > end:
            raise _Fault(f"{name} ends {at - end} bytes after the message that holds it")
        return at


def _place(path: str) -> str:
    return path or "the request"
