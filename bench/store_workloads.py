"""The bundles that the store is measured with."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.model.slots import RESOURCE_ATTRS, SPAN_ATTRS, SPAN_EVENTS, SPANS

if TYPE_CHECKING:
    from collections.abc import Sequence

MB = 1_000_000
MIB = 2**20
ROWS = 100
WIDE_VALUE_BYTES = 240


class Workload(NamedTuple):
    """Distinct bundles, to be sent over and over."""

    name: str
    bundles: Sequence[Bundle]

    @property
    def bytes_each(self) -> float:
        """The mean size of a bundle's rows."""
        return sum(bundle.nbytes for bundle in self.bundles) / len(self.bundles)


def workload_a() -> Workload:
    """50 distinct bundles of 100 rows in four slots, about 125 KB each."""
    random = Random(1)
    return Workload("A", [_telemetry(random) for _ in range(50)])


def workload_b() -> Workload:
    """50 distinct bundles of 1000 rows {i64, i64, utf8 of 40 bytes}."""
    random = Random(2)
    return Workload("B", [Bundle({SPANS: _plain(random, 1000)}) for _ in range(50)])


def _plain(random: Random, rows: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "start": pa.array([random.getrandbits(62) for _ in range(rows)], pa.int64()),
            "end": pa.array([random.getrandbits(62) for _ in range(rows)], pa.int64()),
            "name": pa.array([random.randbytes(20).hex() for _ in range(rows)]),
        }
    )


def _telemetry(random: Random) -> Bundle:
    """Spans, their attributes and events, and resources, with values of realistic lengths."""
    return Bundle(
        {
            RESOURCE_ATTRS: _attributes(random, ROWS),
            SPANS: _spans(random),
            SPAN_ATTRS: _attributes(random, ROWS),
            SPAN_EVENTS: _attributes(random, ROWS),
        }
    )


def _spans(random: Random) -> pa.RecordBatch:
    started = [1_700_000_000_000_000_000 + random.getrandbits(40) for _ in range(ROWS)]
    return pa.record_batch(
        {
            "id": pa.array(range(ROWS), pa.uint16()),
            "start_time_unix_nano": pa.array(started, pa.timestamp("ns")),
            "trace_id": pa.array([random.randbytes(16) for _ in range(ROWS)], pa.binary(16)),
            "span_id": pa.array([random.randbytes(8) for _ in range(ROWS)], pa.binary(8)),
            "name": pa.array([_text(random) for _ in range(ROWS)]),
        }
    )


def _attributes(random: Random, rows: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "parent_id": pa.array(range(rows), pa.uint16()),
            "key": pa.array([f"attribute.{random.randrange(16)}" for _ in range(rows)]),
            "type": pa.array([1] * rows, pa.uint8()),
            "str": pa.array([_text(random) for _ in range(rows)]),
        }
    )


def _text(random: Random) -> str:
    return random.randbytes(WIDE_VALUE_BYTES // 2 + random.randrange(60)).hex()
