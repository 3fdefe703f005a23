"""The same request again and again, with other ids and times, for next to nothing.

A request is encoded once, with marks where it is to vary: every id ends with `ID_MARK`, every time
has `TIME_MARK` in its upper half, every counter `COUNT_MARK`. All three have a fixed width, so the
rest of the encoding stays as it is. The request is cut at its ids, and a copy is one `join` of the
pieces by five other bytes: 50 µs for 1000 spans in 400 KB. Times are written into the pieces once
they are older than a second.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.otel.signals import Signal

# 0xff is in no UTF-8, so that no text holds a mark by chance.
ID_MARK: Final = b"\xff\xfe\xfd\xfc\xfb"
_TIME_MARK: Final = b"\xff\xfe\xfd\x7a"
_COUNT_MARK: Final = b"\xff\xfe\xfd\x79"
_TIME: Final = int.from_bytes(_TIME_MARK, "little") << 32
_COUNT: Final = int.from_bytes(_COUNT_MARK, "little") << 32
WINDOW_NS: Final = 2**32 - 1
"""The times of a request lie in the last 4.3 s before it is sent."""
KEEP_NS: Final = 1_000_000_000
_WORD = struct.Struct("<Q")
_LOW = struct.Struct("<I")
_NONCE_MOST: Final[int] = 256 ** len(ID_MARK) - 1
_STRIDE: Final = 0x9E3779B97B  # odd, so that all of its multiples differ


def marked_time(offset_ns: int) -> int:
    """So many nanoseconds into the window."""
    return _TIME | min(max(offset_ns, 0), WINDOW_NS)


def marked_count(per_second: int) -> int:
    """A counter that grows at that rate."""
    return _COUNT | per_second


def nonce(start: int, number: int) -> bytes:
    """What the ids of the request with that number end with: each has its own."""
    value = (start + number * _STRIDE) & _NONCE_MOST
    return value.to_bytes(len(ID_MARK), "little")


class Stamp:
    """A request, of which copies are made."""

    def __init__(
        self, signal: Signal, data: bytes, records: int, begin_ns: int, *, keep_ns: int = KEEP_NS
    ) -> None:
        """`begin_ns`: when its counters were 0. `keep_ns`: how long its times are good."""
        self.signal = signal
        self.records = records
        self._begin_ns = begin_ns
        self._keep_ns = keep_ns
        self._data = bytearray(data)
        self._times = list(_marked(data, _TIME_MARK))
        self._counts = list(_marked(data, _COUNT_MARK))
        self._good_until_ns = 0
        self._pieces: list[bytes] = []

    def copy(self, now_ns: int, nonce: bytes) -> bytes:
        """The request as of now, with ids that end in `nonce`."""
        if now_ns >= self._good_until_ns:
            self._set_times(now_ns)
        return nonce.join(self._pieces)

    def _set_times(self, now_ns: int) -> None:
        window_ns, write = now_ns - WINDOW_NS, _WORD.pack_into
        for position, offset_ns in self._times:
            write(self._data, position, window_ns + offset_ns)
        lasted_us = max(0, now_ns - self._begin_ns) // 1000
        for position, per_second in self._counts:
            write(self._data, position, per_second * lasted_us // 10**6)
        self._pieces = bytes(self._data).split(ID_MARK)
        self._good_until_ns = now_ns + self._keep_ns


def _marked(data: bytes, mark: bytes) -> Iterator[tuple[int, int]]:
    """Where marked words begin, and what they say."""
    at = data.find(mark)
    while at >= 0:
        position = at - _LOW.size
        yield position, _LOW.unpack_from(data, position)[0]
        at = data.find(mark, at + len(mark))
