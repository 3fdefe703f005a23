"""How many parts a request has, counted before it is parsed.

Two bytes of a request can be a whole record, for which a parser takes a hundred. Counting takes a
few bytes for each part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from pyarrow import types

from penstock.otel.descriptors import shape_handler

if TYPE_CHECKING:
    from penstock.otel.signals import Signal


@dataclass(slots=True)
class Shape:
    """What there can be many of."""

    parts: int = 0
    """Resources, scopes, records of all kinds, attributes, items of arrays and maps."""
    items: list[pa.Array] = field(default_factory=list)
    """Encoded items of arrays, not counted inside."""
    pairs: list[pa.Array] = field(default_factory=list)
    """Encoded pairs of maps, not counted inside."""

    def count(self, array: pa.Array) -> None:
        """Counts the parts in nested lists of messages."""
        if types.is_list(array.type):
            self.parts += len(array.values)
            self.count(array.values)
        elif types.is_struct(array.type):
            for number, part in enumerate(array.type):
                inner = array.field(number)
                if part.name == "array_value":
                    self.items.append(inner.field("values").values)
                elif part.name == "kvlist_value":
                    self.pairs.append(inner.field("values").values)
                self.count(inner)


def measure(signal: Signal, data: bytes, most_parts: int) -> Shape:
    """Counts, level by level; stops when there are more. `data` must be a valid request."""
    class_: Any = signal.request_class
    shape = Shape()
    shape.count(shape_handler(class_).list_to_record_batch([data]).column(0))
    while True:
        levels = [(AnyValue, shape.items), (KeyValue, shape.pairs)]
        shape.items, shape.pairs = [], []
        for class_, encoded in levels:
            values = pa.concat_arrays(encoded) if encoded else ()
            if len(values) and shape.parts <= most_parts:
                batch = shape_handler(class_).array_to_record_batch(values)
                shape.count(pa.StructArray.from_arrays(batch.columns, names=batch.schema.names))
        if shape.parts > most_parts or not (shape.items or shape.pairs):
            return shape
