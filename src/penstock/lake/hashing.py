"""128 bits for every row: equal for equal rows, and in practice for no others.

Columns become numbers, and numbers are mixed; no row passes through Python. Only the different
strings of a column do, which repeat in telemetry.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes: TypeAlias = NDArray[np.uint64]
    """Two numbers for each row."""

_LANES: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
_NULL: Final = np.array([0x2545F4914F6CDD1D, 0xD6E8FEB86659FD93], np.uint64)
_MULTIPLY_1, _MULTIPLY_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ID_CHARACTERS: Final = (16, 32)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


def hash_columns(columns: list[pa.Array]) -> Hashes:
    """Of rows that consist of these columns, in this order."""
    hashes = np.zeros((len(columns[0]), 2), np.uint64)
    for column in columns:
        hashes = mixed(hashes + hash_array(column) + _LANES)
    return hashes


def hash_array(array: pa.Array) -> Hashes:
    """Of the values of one column; equal values have the same, in every array."""
    if types.is_dictionary(array.type):
        hashes = _shared(array)
    elif types.is_map(array.type):
        entries = mixed(hash_array(array.keys) + _LANES) ^ hash_array(array.items)
        hashes = _sums(mixed(entries), array.offsets)  # in any order
    elif types.is_list(array.type):
        places = np.arange(len(array.values), dtype=np.uint64)
        hashes = _sums(mixed(hash_array(array.values) + _places(array, places)), array.offsets)
    elif types.is_struct(array.type):
        fields = [array.field(number) for number in range(array.type.num_fields)]
        hashes = hash_columns(fields) if fields else np.zeros((len(array), 2), np.uint64)
    elif types.is_string(array.type) or types.is_binary(array.type):
        hashes = _strings(array)
    else:
        hashes = mixed(_words(array)[:, None] * _LANES)
    return _with_nulls(hashes, array)


def mixed(numbers: Hashes) -> Hashes:
    """Every bit depends on every other: the finalizer of SplitMix64."""
    numbers = (numbers ^ (numbers >> _30)) * _MULTIPLY_1
    numbers = (numbers ^ (numbers >> _27)) * _MULTIPLY_2
    return numbers ^ (numbers >> _31)


def _words(array: pa.Array) -> Any:
    """Numbers, times and truth values as 64 bits each."""
    if types.is_boolean(array.type) or types.is_null(array.type):
        return array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64)
    if types.is_floating(array.type):
        return array.cast(pa.float64()).fill_null(0.0).to_numpy().view(np.uint64)
    plain = array.cast(pa.int32()) if types.is_date32(array.type) else array
    whole = plain.cast(pa.int64()).fill_null(0).to_numpy()
    return whole.view(np.uint64)


def _strings(array: pa.Array) -> Hashes:
    """Ids are read as numbers; others are hashed once each, since most of them repeat."""
    hashes = np.zeros((len(array), 2), np.uint64)
    lengths = pc.binary_length(array).fill_null(0).to_numpy()
    left = np.ones(len(array), bool)
    for length in _ID_CHARACTERS:
        chosen = lengths == length
        if chosen.any():
            hashes[chosen] = _ids(array if chosen.all() else array.filter(pa.array(chosen)), length)
            left &= ~chosen
    if left.any():
        hashes[left] = _texts(array if left.all() else array.filter(pa.array(left)))
    return hashes


def _shared(array: pa.DictionaryArray) -> Hashes:
    if not len(array.dictionary):
        return np.zeros((len(array), 2), np.uint64)
    found: Hashes = hash_array(array.dictionary)[array.indices.fill_null(0).to_numpy()]
    return found


def _ids(array: pa.Array, length: int) -> Hashes:
    """Of strings that all have this length."""
    data = np.frombuffer(array.buffers()[2], np.uint8)
    first = _first(array)
    words = data[first : first + len(array) * length].view(np.uint64).reshape(len(array), -1)
    hashes = np.zeros((len(array), 2), np.uint64)
    for number in range(words.shape[1]):
        hashes = mixed(hashes + words[:, number, None] + _LANES)
    return hashes


def _first(array: pa.Array) -> int:
    """Where the characters of the first string are."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return int(offsets[array.offset])


def _texts(array: pa.Array) -> Hashes:
    encoded = array.dictionary_encode()
    digests = b"".join(
        blake2b(text, digest_size=16).digest()
        for text in encoded.dictionary.cast(pa.binary()).to_pylist()
    )
    if not digests:
        return np.zeros((len(array), 2), np.uint64)
    hashes = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    found: Hashes = hashes[encoded.indices.fill_null(0).to_numpy()]
    return found


def _sums(entries: Hashes, offsets: pa.Array) -> Hashes:
    """Of the entries of each list, and of how many they are."""
    ends = np.zeros((len(entries) + 1, 2), np.uint64)
    np.cumsum(entries, axis=0, out=ends[1:])
    bounds = offsets.to_numpy()
    counts = np.diff(bounds).astype(np.uint64)
    return mixed(ends[bounds[1:]] - ends[bounds[:-1]] + counts[:, None] + _LANES)


def _places(array: pa.Array, places: Any) -> Hashes:
    """Where each item stands in its list."""
    bounds = array.offsets.to_numpy()
    first = np.zeros(len(places), np.uint64)
    covered = slice(int(bounds[0]), int(bounds[-1])) if len(bounds) > 1 else slice(0, 0)
    first[covered] = np.repeat(bounds[:-1], np.diff(bounds)).astype(np.uint64)
    return mixed((places - first + np.uint64(1))[:, None] * _LANES)


def _with_nulls(hashes: Hashes, array: pa.Array) -> Hashes:
    if array.null_count:
        hashes[pc.is_null(array).to_numpy(zero_copy_only=False)] = _NULL
    return hashes
