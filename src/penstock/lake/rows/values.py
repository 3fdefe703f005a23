"""OTLP's values as text, with the names of what they were.

    str           itself
    int           decimal
    double        the shortest text that is read back as the same number; nan, inf, -inf
    bool          true, false
    bytes         base64
    array, map    JSON
    empty         null

Strings are the only ones that have no name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from penstock.lake.rows.fields import Fields, as_type
from penstock.lake.rows.nested import array_text, base64_text, map_text
from penstock.otel.columns import plain, scalar
from penstock.otel.values import BOOL, BYTES, DOUBLE, EMPTY, INT, MAP, SLICE, STR

if TYPE_CHECKING:
    from collections.abc import Callable

_CODE: Final = pa.uint8()
_INDEX: Final = pa.int32()
_NAMES: Final = {
    EMPTY: "empty",
    STR: None,
    INT: "int",
    DOUBLE: "double",
    BOOL: "bool",
    MAP: "map",
    SLICE: "array",
    BYTES: "bytes",
}
_TYPE_NAMES: Final = pa.concat_arrays(
    pa.repeat(pa.scalar(_NAMES.get(code, str(code)), pa.string()), 1) for code in range(256)
)
"""By code. Not from a list: for one Arrow would import pandas."""


def type_codes(values: Fields) -> pa.Array:
    """OTAP's codes of the types; null where there is no value at all."""
    return values.plain("type", _CODE)


def type_names(codes: pa.Array) -> pa.Array:
    """What the values were; null for strings."""
    return _TYPE_NAMES.take(codes)


def shared_names(codes: pa.Array) -> pa.DictionaryArray:
    """What the values were that are no strings."""
    encoded = codes.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices, type_names(encoded.dictionary))


def is_text(codes: pa.Array) -> pa.BooleanArray:
    """Which of the values are strings."""
    return pc.equal(codes, scalar(STR, _CODE))


def value_texts(values: Fields, codes: pa.Array) -> pa.Array:
    """The values as text; what is not of a row's type is ignored.

    Different texts are gathered first, and where each row finds its own; then it is one gather.
    """
    return shared_texts(values, codes).dictionary_decode()


def shared_texts(values: Fields, codes: pa.Array) -> pa.DictionaryArray:
    """The same; a text may be in the dictionary twice."""
    pool = _Pool(values)
    for kind in set(codes.unique().to_pylist()) - {STR, None}:
        pool.put(pc.equal(codes, scalar(kind, _CODE)), kind, values)
    return pool.texts()


class _Pool:
    """Texts, and for each row the index of one; null: none."""

    def __init__(self, values: Fields) -> None:
        """Begins with the strings."""
        strings, self._at = _encoded_strings(values)
        self._parts = [strings]
        self._size = len(strings)

    def put(self, active: pa.BooleanArray, kind: int, values: Fields) -> None:
        """Gives the active rows the texts of their kind."""
        name, convert = _KINDS.get(kind, ("", None))
        column = values.get(name)
        if column is None or convert is None:
            found: pa.Array | pa.Scalar = scalar(None, _INDEX)
        else:
            texts, indexes = convert(plain(column).filter(active))
            found = pc.add(indexes, pa.scalar(self._size, _INDEX))
            self._parts.append(texts)
            self._size += len(texts)
        self._at = pc.replace_with_mask(self._at, active, found)

    def texts(self) -> pa.Array:
        """The text of each row."""
        return pa.DictionaryArray.from_arrays(self._at, pa.concat_arrays(self._parts))


def _encoded_strings(values: Fields) -> tuple[pa.Array, pa.Array]:
    column = values.get("str")
    if column is None:
        return pa.nulls(0, pa.string()), pa.nulls(values.count, _INDEX)
    if not types.is_dictionary(column.type) or column.dictionary.null_count:
        column = plain(column).dictionary_encode()
    return as_type(column.dictionary, pa.string()), column.indices.cast(_INDEX)


def _integers(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    encoded = values.dictionary_encode()
    return encoded.dictionary.cast(pa.string()), encoded.indices


def _doubles(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    # Rarely equal: a dictionary would be work for nothing.
    return values.cast(pa.string()), pa.arange(0, len(values)).cast(_INDEX)


def _booleans(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    return pa.array(["false", "true"]), values.cast(_INDEX)


def _others(text: Callable[[bytes], str]) -> Callable[[pa.Array], tuple[pa.Array, pa.Array]]:
    def convert(values: pa.Array) -> tuple[pa.Array, pa.Array]:
        encoded = values.dictionary_encode()
        texts = [text(data) for data in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()), encoded.indices

    return convert


_KINDS: Final = {
    INT: ("int", _integers),
    DOUBLE: ("double", _doubles),
    BOOL: ("bool", _booleans),
    BYTES: ("bytes", _others(base64_text)),
    MAP: ("ser", _others(map_text)),
    SLICE: ("ser", _others(array_text)),
}
