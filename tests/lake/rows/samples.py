"""Tables and requests that the tests of the rows share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.model import slots
from penstock.model.bundle import Bundle
from penstock.otel import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Pair = tuple[int, str, str]
"""A parent, a key and a string."""


def span_request(count: int = 1, **resource: str) -> Any:
    """A request with some spans of one resource."""
    request: Any = Signal.TRACES.request_class()
    outer = request.resource_spans.add()
    for key, value in resource.items():
        outer.resource.attributes.add(key=key.replace("_", ".")).value.string_value = value
    spans = outer.scope_spans.add().spans
    for number in range(1, count + 1):
        spans.add(trace_id=bytes([number]) * 16, span_id=bytes([number]) * 8, name=f"span {number}")
    return request


def only_span(request: Any) -> Any:
    """The span of a request with one."""
    return request.resource_spans[0].scope_spans[0].spans[0]


def attribute_table(pairs: Sequence[Pair], parent: pa.DataType | None = None) -> pa.RecordBatch:
    """A table of strings, in this order."""
    parents, keys, texts = zip(*pairs, strict=True)
    columns = {
        "parent_id": pa.array(parents, parent or pa.uint16()),
        "key": pa.array(keys).dictionary_encode(),
        "type": pa.array([1] * len(pairs), pa.uint8()),
        "str": pa.array(texts),
    }
    return pa.record_batch(columns)


def span_bundle(
    ids: Sequence[int | None], pairs: Sequence[Pair], more: Mapping[int, pa.RecordBatch] = {}
) -> Bundle:
    """Spans with these ids and attributes, as another writer of OTAP may send them."""
    count = len(ids)
    spans = {
        "id": pa.array(ids, pa.uint16()),
        "start_time_unix_nano": pa.array([1000] * count, pa.timestamp("ns")),
        "duration_time_unix_nano": pa.array([5] * count, pa.duration("ns")),
        "trace_id": pa.array([bytes([n + 1]) * 16 for n in range(count)], pa.binary(16)),
        "span_id": pa.array([bytes([n + 1]) * 8 for n in range(count)], pa.binary(8)),
        "name": pa.array([f"span {n}" for n in range(count)]),
    }
    tables = {slots.SPANS: pa.record_batch(spans), slots.SPAN_ATTRS: attribute_table(pairs)}
    return Bundle({**tables, **more})
