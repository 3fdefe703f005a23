"""How large the vocabularies of a stream have grown while its bundles arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.segment.dictionaries import Path, dictionary_at, dictionary_paths

if TYPE_CHECKING:
    from collections.abc import Iterator


class DictionaryGauge:
    """Counts the values of one column's dictionaries, cheaply while they are few.

    The sum of the dictionaries' lengths is the first answer; only when it passes the limit are the
    different values counted.
    """

    __slots__ = ("_is_plain", "_limit", "_uncounted", "_upper_bound", "_values")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: pa.Array | None = None
        self._uncounted: list[pa.Array] = []
        self._upper_bound = 0
        self._is_plain = False

    def fits(self, dictionary: pa.Array) -> bool:
        """Whether the limit holds with that dictionary too."""
        if self._is_plain or self._upper_bound + len(dictionary) <= self._limit:
            return True
        self._count()
        return self._is_plain or len(self._union([dictionary])) <= self._limit

    def add(self, dictionary: pa.Array) -> None:
        """Counts it. One that is over the limit by itself makes the column plain."""
        self._is_plain = self._is_plain or len(dictionary) > self._limit
        if self._is_plain:
            self._uncounted.clear()
            return
        self._uncounted.append(dictionary)
        self._upper_bound += len(dictionary)

    def is_at_limit(self) -> bool:
        if self._is_plain or self._upper_bound < self._limit:
            return False
        self._count()
        return not self._is_plain and self._upper_bound >= self._limit

    def _count(self) -> None:
        if not self._uncounted:
            return
        try:
            self._values = self._union(self._uncounted)
        except pa.ArrowNotImplementedError:  # no vocabulary can be made of such values
            self._is_plain = True
        else:
            self._upper_bound = len(self._values)
        self._uncounted.clear()

    def _union(self, dictionaries: list[pa.Array]) -> pa.Array:
        known = [] if self._values is None else [self._values]
        return pa.chunked_array([*known, *dictionaries]).unique().drop_null()


class StreamGauge:
    """The gauges of all dictionary columns of a stream."""

    __slots__ = ("_gauges",)

    def __init__(self, schema: pa.Schema, limit: int) -> None:
        self._gauges: dict[Path, DictionaryGauge] = {
            path: DictionaryGauge(limit) for path in dictionary_paths(schema)
        }

    def fits(self, batch: pa.RecordBatch) -> bool:
        """Whether every vocabulary stays within the limit with the batch."""
        return all(gauge.fits(dictionary) for gauge, dictionary in self._each(batch))

    def add(self, batch: pa.RecordBatch) -> None:
        for gauge, dictionary in self._each(batch):
            gauge.add(dictionary)

    def is_at_limit(self) -> bool:
        """Whether a vocabulary has no room for another value."""
        return any(gauge.is_at_limit() for gauge in self._gauges.values())

    def _each(self, batch: pa.RecordBatch) -> Iterator[tuple[DictionaryGauge, pa.Array]]:
        for path, gauge in self._gauges.items():
            yield gauge, dictionary_at(batch, path).dictionary
