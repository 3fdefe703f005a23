"""Segments as rows: a stream of these carries what is to be read, and not what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.model.positions import SourcePartition
from penstock.otel.signals import Signal
from penstock.tiers.segments import Segment, State

if TYPE_CHECKING:
    from collections.abc import Iterable

DESCRIPTORS: Final = pa.schema(
    [
        ("source", pa.string()),
        ("topic", pa.string()),
        ("namespace", pa.string()),
        ("partition", pa.int32()),
        ("segment_seq", pa.int64()),
        ("path", pa.string()),
        ("first_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("bytes", pa.int64()),
        ("bundles", pa.int64()),
        ("items", pa.int64()),
        ("sealed_at", pa.timestamp("us", "UTC")),
        ("signal", pa.string()),
        ("state", pa.string()),
        ("problem", pa.string()),
        ("detail", pa.string()),
    ]
)
"""`state` is `sealed`, `damaged` or `gone`; `problem` says what is wrong with the latter two.
`detail` is for whoever opens the segment."""

_NS_PER_US: Final = 1000
_PLACE: Final = ("source", "topic", "namespace", "partition")


def descriptor_rows(segments: Iterable[Segment]) -> pa.RecordBatch:
    """A row for each."""
    return pa.RecordBatch.from_pylist([_row(segment) for segment in segments], DESCRIPTORS)


def segments_of(rows: pa.RecordBatch) -> list[Segment]:
    """The segments that the rows describe; every column has to be there."""
    times = rows.column("sealed_at").cast(pa.int64()).fill_null(0).to_pylist()
    others = rows.drop_columns(["sealed_at"]).to_pylist()
    return [
        Segment(**_fields(row), sealed_at_ns=time_us * _NS_PER_US)
        for row, time_us in zip(others, times, strict=True)
    ]


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    place = SourcePartition(row["source"], row["topic"], row["partition"])
    signal, state = row["signal"], State(row["state"])
    fields = {name: each for name, each in row.items() if name not in _PLACE}
    return {**fields, "place": place, "state": state, "signal": signal and Signal(signal)}


def _row(segment: Segment) -> dict[str, Any]:
    names = {*DESCRIPTORS.names} - {"sealed_at", *_PLACE}
    return {
        **{name: getattr(segment, name) for name in names},
        **{name: getattr(segment.place, name) for name in _PLACE},
        "sealed_at": segment.sealed_at_ns // _NS_PER_US or None,
        "signal": segment.signal and segment.signal.value,
        "state": segment.state.value,
    }
