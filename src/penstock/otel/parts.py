"""How many parts a request has, counted before anything of it is parsed.

Two bytes of a request can be a whole record, for which a parser takes a hundred. Counting takes no
memory, and ends with the first part that is too many.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from penstock.otel.signals import Signal

FIELDS_OF_A_PART: Final = 4
"""Parts of real requests have two or three fields each; more than this on average are refused,
since each of them takes time."""
_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
_DEEP: Final = 200
"""Parsers go half as deep."""
_NOTHING: Final[dict[int, Any]] = {}

Table = dict[int, "tuple[Table, bool]"]
"""Of a message: by field number, what a message there holds, and whether it is one of a list."""


def count_parts(signal: Signal, data: bytes, most: int) -> int:
    """Resources, scopes, records of all kinds, attributes, items of arrays and maps.

    Raises InvalidArgument for more than `most`. What is malformed is counted as far as it can be
    read; whoever parses it says so, and is given no more parts than were counted.
    """
    try:
        return _count(_table(signal.request_class.DESCRIPTOR), data, most)
    except IndexError:  # it ends within a field, or nobody could parse it
        return most


def _count(table: Table, data: bytes, most: int) -> int:
    """One walk over all the fields, without recursion: nesting is the sender's to choose."""
    parts, fields, at, end = 0, most * FIELDS_OF_A_PART, 0, len(data)
    outside: list[tuple[int, Table]] = []
    while True:
        while at < end:
            fields -= 1
            if fields < 0:
                raise _too_many("fields", most * FIELDS_OF_A_PART)
            key = data[at]
            at += 1
            if key > 0x7F:
                key, at = _varint(data, at, key & 0x7F)
            wire = key & 7
            if wire == _BYTES:
                length = data[at]
                at += 1
                if length > 0x7F:
                    length, at = _varint(data, at, length & 0x7F)
                held = table.get(key >> 3)
                if held is None:
                    at += length
                    continue
                parts += held[1]
                if parts > most:
                    raise _too_many("records, attributes and other parts", most)
                if length:
                    outside.append((end, table))
                    if len(outside) > _DEEP:
                        raise IndexError
                    table, end = held[0], min(at + length, end)
            elif wire == _VARINT:
                while data[at] > 0x7F:
                    at += 1
                at += 1
            elif wire == _FIXED64:
                at += 8
            elif wire == _FIXED32:
                at += 4
            elif wire == _GROUP:
                # Unknown, and kept as bytes by whoever parses it: nothing in it is a part.
                outside.append((end, table))
                table = _NOTHING
                if len(outside) > _DEEP:
                    raise IndexError
            elif wire == _GROUP_END and outside:
                end, table = outside.pop()
            else:
                raise IndexError  # of no wire type
        if not outside:
            return parts
        end, table = outside.pop()


def _too_many(what: str, most: int) -> InvalidArgument:
    return InvalidArgument(f"the request holds too many {what}; the most is {most}")


def _varint(data: bytes, at: int, number: int) -> tuple[int, int]:
    """The rest of a number whose first seven bits are known, and where it ends."""
    for shift in range(7, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise IndexError


@cache
def _table(descriptor: Any) -> Table:
    """Made once for each kind of message, and complete before it is used: values hold values."""
    made: dict[str, Table] = {}

    def fill(message: Any) -> Table:
        if message.full_name in made:
            return made[message.full_name]
        table = made[message.full_name] = {}
        for field in message.fields:
            if field.message_type is not None:
                table[field.number] = (fill(field.message_type), field.is_repeated)
        return table

    return fill(descriptor)
