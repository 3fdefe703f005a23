"""OTLP requests become bundles of OTAP tables."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.model.errors import InvalidArgument
from penstock.model.slots import (
    EXP_HISTOGRAM_DATA_POINTS,
    MAX_ROOT_RECORDS,
    MESSAGE_RECORDS,
    NUMBER_DATA_POINTS,
    REMAINDER,
)
from penstock.otel.containers import Containers
from penstock.otel.descriptors import flat_handler
from penstock.otel.logs import log_tables
from penstock.otel.metrics import metric_tables
from penstock.otel.remainder import Remainder
from penstock.otel.signals import Signal
from penstock.otel.traces import span_tables
from penstock.otel.values import NotCanonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUNDLE_BYTES: Final = 4 * 1024 * 1024
"""Requests are decoded together until they are this large."""

_TABLES: Final = {
    Signal.TRACES: span_tables,
    Signal.LOGS: log_tables,
    Signal.METRICS: metric_tables,
}
_MESSAGE_SCHEMA: Final = pa.schema([pa.field("records", pa.uint16(), nullable=False)])


@dataclass(frozen=True, slots=True)
class DecodedRequests:
    """What became of consecutive requests."""

    count: int
    bundle: Bundle | None
    """None: the one request cannot be decoded."""
    problem: str = ""
    records: tuple[int, ...] = ()
    """How many rows of the root table each request has: the first have the first rows, …."""


def decode_requests(
    signal: Signal, messages: Sequence[bytes], *, bundle_bytes: int = BUNDLE_BYTES
) -> list[DecodedRequests]:
    """Covers every message, in order, and depends on nothing but the messages.

    They must have been checked (`check_request`). One that cannot be decoded all the same is an
    entry of its own, with the problem, and never raises; the others are decoded.
    """
    groups = _groups(messages, bundle_bytes)
    return [decoded for group in groups for decoded in _decode(signal, group)]


def _groups(messages: Sequence[bytes], most_bytes: int) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for message in messages:
        if group and size + len(message) > most_bytes:
            yield group
            group, size = [], 0
        group.append(message)
        size += len(message)
    if group:
        yield group


def _decode(signal: Signal, group: list[bytes]) -> list[DecodedRequests]:
    try:
        return _decode_together(signal, group)
    except BaseException as error:  # whatever one message does must not stop the others
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if len(group) == 1:
            return [DecodedRequests(1, None, f"{type(error).__name__}: {error}")]
    half = len(group) // 2
    return _decode(signal, group[:half]) + _decode(signal, group[half:])


def _decode_together(
    signal: Signal, group: list[bytes], *, canonical: bool = False
) -> list[DecodedRequests]:
    containers = Containers.of(flat_handler(signal).list_to_record_batch(group))
    if containers.too_many:
        parts = pairwise(_parts(containers, len(group)))
        return [decoded for start, end in parts for decoded in _decode(signal, group[start:end])]
    try:
        return [_bundle(signal, group, containers)]
    except NotCanonical:
        if canonical:
            raise
    parse = signal.request_class.FromString
    rewritten = [parse(data).SerializeToString() for data in group]
    return _decode_together(signal, rewritten, canonical=True)


def _parts(containers: Containers, count: int) -> list[int]:
    """Where to divide requests that are together too large, so that each part is not."""
    levels = containers.ends()
    parts = [0]
    while parts[-1] < count:
        before = parts[-1]
        base = [ends[before - 1] if before else 0 for ends in levels]
        end = min(
            bisect_right(ends, start + MAX_ROOT_RECORDS)
            for ends, start in zip(levels, base, strict=True)
        )
        if end == before:
            if count == 1:
                most = f"the most is {MAX_ROOT_RECORDS}"
                raise InvalidArgument(f"too many records, resources or scopes in a request; {most}")
            end += 1
        parts.append(end)
    return parts


def _bundle(signal: Signal, group: list[bytes], containers: Containers) -> DecodedRequests:
    remainder = Remainder()
    tables = containers.tables(remainder) | _TABLES[signal](containers, remainder)
    if containers.any_empty:
        remainder.add_empty(signal, b"".join(group))
    tables[REMAINDER] = remainder.table()
    counts = [len(containers.records.values)]
    if len(group) > 1:
        *_, ends = containers.ends()
        counts = [end - start for start, end in pairwise([0, *ends])]
        column = pa.array(counts, pa.uint16())
        tables[MESSAGE_RECORDS] = pa.RecordBatch.from_arrays([column], schema=_MESSAGE_SCHEMA)
    present = {slot: table for slot, table in tables.items() if table is not None}
    bundle = Bundle(present, items=_count_items(signal, present))
    return DecodedRequests(len(group), bundle, records=tuple(counts))


def _count_items(signal: Signal, tables: dict[int, pa.RecordBatch]) -> int:
    if signal is not Signal.METRICS:
        return len(tables[signal.root_slot])
    points = range(NUMBER_DATA_POINTS, EXP_HISTOGRAM_DATA_POINTS + 1)
    return sum(len(tables[slot]) for slot in points if slot in tables)
