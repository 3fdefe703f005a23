"""Bloom filters as Parquet has them: whether a text may be in a column of a row group.

A filter is blocks of 32 bytes. The upper half of the text's XXH64 chooses the block, the lower half
one bit in each of the block's eight words. Pure: no files.
"""

from __future__ import annotations

import struct
from typing import Final

BLOCK_BYTES: Final = 32
_WORDS: Final = struct.Struct("<8I")
_SALTS: Final = (
    *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
    *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
)
_PRIMES: Final = (
    *(0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
    *(0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)
_MASK_32: Final = 0xFFFFFFFF
_MASK: Final = 0xFFFFFFFFFFFFFFFF
_STRIPE: Final = struct.Struct("<4Q")


def block_of(hash_: int, filter_bytes: int) -> int:
    """Where the block of a text begins in a filter of that size."""
    return ((hash_ >> 32) * (filter_bytes // BLOCK_BYTES) >> 32) * BLOCK_BYTES


def may_have(hash_: int, block: bytes) -> bool:
    """Whether the text may be there; never wrongly false."""
    key = hash_ & _MASK_32
    words = zip(_WORDS.unpack(block), _SALTS, strict=True)
    return all(word >> ((key * salt & _MASK_32) >> 27) & 1 for word, salt in words)


def bitset_bytes(header: bytes) -> int | None:
    """How long the filter is that a header speaks of: its first field, a varint in zigzag."""
    if header[:1] != b"\x15":
        return None
    number = shift = 0
    for byte in header[1:6]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number >> 1
    return None


def xxh64(data: bytes) -> int:
    """The 64-bit xxHash with the seed 0."""
    first, second, _, fourth, fifth = _PRIMES
    at, size = 0, len(data)
    if size >= _STRIPE.size:
        lanes = [(first + second) & _MASK, second, 0, -first & _MASK]
        while at + _STRIPE.size <= size:
            words = _STRIPE.unpack_from(data, at)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += _STRIPE.size
        found = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * first + fourth) & _MASK
    else:
        found = fifth
    return _ended((found + size) & _MASK, data[at:])


def _ended(found: int, rest: bytes) -> int:
    first, second, third, fourth, fifth = _PRIMES
    while len(rest) >= 8:
        found ^= _round(0, int.from_bytes(rest[:8], "little"))
        found, rest = (_turned(found, 27) * first + fourth) & _MASK, rest[8:]
    if len(rest) >= 4:
        found ^= int.from_bytes(rest[:4], "little") * first & _MASK
        found, rest = (_turned(found, 23) * second + third) & _MASK, rest[4:]
    for byte in rest:
        found = _turned(found ^ (byte * fifth & _MASK), 11) * first & _MASK
    found = (found ^ found >> 33) * second & _MASK
    found = (found ^ found >> 29) * third & _MASK
    return found ^ found >> 32


def _round(lane: int, word: int) -> int:
    return _turned((lane + word * _PRIMES[1]) & _MASK, 31) * _PRIMES[0] & _MASK


def _turned(number: int, by: int) -> int:
    return (number << by | number >> (64 - by)) & _MASK
