"""A run: the identities of the rows of some commits, sorted, behind a filter.

Grammar, example and downsides are in docs/formats/repeat-window.md. Pure: no files, no clock.

    run    := head[64] note zeros filter first second
    head   := "PNSTKRUN" version:u16 zeros:u16 note_bytes:u32 keys:u64 words:u64
              oldest_ms:u64 newest_ms:u64 zeros crc:u32
    filter := word:u64 x words
    first  := u64 x keys, rising
    second := u64 x keys
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from isal.isal_zlib import crc32

from penstock.model.errors import Damaged, UnsupportedVersion

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.lake.hashing import Hashes

MAGIC: Final = b"PNSTKRUN"
VERSION: Final = 1
HEAD_BYTES: Final = 64
KEYS_A_WORD: Final = 4
"""On average: two bytes a key, and one key in two hundred is looked up in vain."""
WORD_BYTES: Final = 8
KEY_BYTES: Final = 2 * WORD_BYTES
_HEAD: Final = struct.Struct("<8sHHIQQQQ")
_CRC: Final = struct.Struct("<I")
_32, _6, _63, _1 = np.uint64(32), np.uint64(6), np.uint64(63), np.uint64(1)
_BITS: Final = 4


@dataclass(frozen=True, slots=True)
class Head:
    """What a run says of itself."""

    keys: int
    words: int
    oldest_ms: int
    newest_ms: int
    note: bytes

    @property
    def filter_at(self) -> int:
        """Where the filter begins."""
        return HEAD_BYTES + -(-len(self.note) // WORD_BYTES) * WORD_BYTES

    @property
    def keys_at(self) -> int:
        """Where the first halves begin."""
        return self.filter_at + self.words * WORD_BYTES

    @property
    def size(self) -> int:
        """Of the whole file."""
        return self.keys_at + self.keys * KEY_BYTES


def encode_head(head: Head) -> bytes:
    """All that stands before the filter."""
    sizes, times = (head.keys, head.words), (head.oldest_ms, head.newest_ms)
    packed = _HEAD.pack(MAGIC, VERSION, 0, len(head.note), *sizes, *times)
    packed = packed.ljust(HEAD_BYTES - _CRC.size, b"\0")
    checked = _CRC.pack(crc32(packed + head.note))
    return (packed + checked + head.note).ljust(head.filter_at, b"\0")


def decode_head(data: bytes | memoryview) -> Head:
    """Of the file `data`; Damaged where it is not whole."""
    if len(data) < HEAD_BYTES or bytes(data[: len(MAGIC)]) != MAGIC:
        raise Damaged("not a run of the repeat window")
    _, version, _, note_bytes, keys, words, oldest_ms, newest_ms = _HEAD.unpack_from(data)
    if version != VERSION:
        raise UnsupportedVersion(f"run version {version}, this Penstock reads {VERSION}")
    note = bytes(data[HEAD_BYTES : HEAD_BYTES + note_bytes])
    head = Head(keys, words, oldest_ms, newest_ms, note)
    packed = bytes(data[: HEAD_BYTES - _CRC.size])
    if crc32(packed + head.note) != _CRC.unpack_from(data, HEAD_BYTES - _CRC.size)[0]:
        raise Damaged("the checksum of the run does not match")
    if len(data) != head.size:
        raise Damaged(f"the run has {len(data)} bytes, not {head.size}")
    return head


class Asked:
    """Keys in the order of their first halves, as filters are asked for them."""

    def __init__(self, keys: Hashes) -> None:
        self.keys = keys
        self._high = keys[:, 0] >> _32
        self.bits = np.zeros(len(keys), np.uint64)
        for number in range(_BITS):
            self.bits |= _1 << ((keys[:, 1] >> (_6 * np.uint64(number))) & _63)

    def places(self, words: int) -> NDArray[np.uint64]:
        """Rising with the first half, so that sorted keys walk through the filter."""
        return (self._high * np.uint64(words)) >> _32


def filter_of(keys: Hashes, words: int) -> NDArray[np.uint64]:
    """The filter of keys in the order of their first halves."""
    made = np.zeros(words, np.uint64)
    if len(keys):
        asked = Asked(keys)
        places = asked.places(words)
        begins = np.flatnonzero(np.diff(places, prepend=places[0] + _1))
        made[places[begins]] = np.bitwise_or.reduceat(asked.bits, begins)
    return made


def may_have(words: NDArray[np.uint64], asked: Asked) -> NDArray[np.bool_]:
    """False: the run does not have the key."""
    found: NDArray[np.bool_] = (words[asked.places(len(words))] & asked.bits) == asked.bits
    return found


def words_for(keys: int) -> int:
    """How many words the filter of so many keys has."""
    return keys // KEYS_A_WORD + 1
