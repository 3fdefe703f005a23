"""ULIDs: names that sort by the time they were made.

    ulid := milliseconds since 1970:u48 random:u80     big-endian; as text 26 digits of base 32

As bytes and as text they sort alike. Those of one source always grow, whatever the clock does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    import random

    from penstock.model.clock import Clock

Ulid: TypeAlias = bytes

ULID_BYTES: Final = 16
ULID_DIGITS: Final = 26
LOWEST: Final[Ulid] = bytes(ULID_BYTES)
HIGHEST: Final[Ulid] = b"\xff" * ULID_BYTES

_RANDOM_BITS: Final = 80
_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_TEXT = re.compile(f"[0-7][{_DIGITS}]{{{ULID_DIGITS - 1}}}")
_MS_LIMIT: Final = 2**48


def ulid_text(ulid: Ulid) -> str:
    """The 26 digits."""
    number = int.from_bytes(ulid, "big")
    return "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))


def parse_ulid(text: str) -> Ulid | None:
    """The ULID of 26 upper-case digits; None for any other text."""
    if not _TEXT.fullmatch(text):
        return None
    number = 0
    for digit in text:
        number = number << 5 | _VALUES[digit]
    return number.to_bytes(ULID_BYTES, "big")


def ulid_ms(ulid: Ulid) -> int:
    """When it was made, in milliseconds since 1970, as far as its maker's clock knew."""
    return int.from_bytes(ulid[:6], "big")


def lowest_ulid_at(ms: int) -> Ulid:
    """The lowest that can be made at that time; a time before 1970 counts as 1970."""
    return min(max(ms, 0), _MS_LIMIT - 1).to_bytes(6, "big") + bytes(10)


class UlidSource:
    """Makes ULIDs, each greater than the one before, also when the clock steps back."""

    def __init__(self, clock: Clock, randomness: random.Random) -> None:
        self._clock = clock
        self._randomness = randomness
        self._last = 0

    def next(self, at_least: Ulid = LOWEST) -> Ulid:
        """A new one, not lower than `at_least`."""
        ms = min(max(self._clock.wall_ns() // 1_000_000, 0), _MS_LIMIT - 1)
        fresh = ms << _RANDOM_BITS | self._randomness.getrandbits(_RANDOM_BITS)
        least = int.from_bytes(at_least, "big")
        if fresh < least:
            # Random behind the bound as well: two sources above one bound must not meet.
            fresh = least + self._randomness.getrandbits(_RANDOM_BITS - 1)
        self._last = fresh if fresh > self._last else self._last + 1
        if self._last >= 1 << 8 * ULID_BYTES:
            raise InvalidArgument("the clock is beyond the last ULID, in the year 10889")
        return self._last.to_bytes(ULID_BYTES, "big")
