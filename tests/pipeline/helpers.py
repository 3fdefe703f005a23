"""Data directories of known content: segments of spans that say which they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.log.environment import Environment, MemoryBound
from penstock.metrics import Metrics
from penstock.model import Topic
from penstock.model.settings import SegmentSettings, StoreSettings
from penstock.otel import Signal
from penstock.segment import segment_name
from penstock.storage import DataDirectory
from penstock.store import Store
from penstock.store.decoding import RequestDecoder as RequestDecoder
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRACES = Topic("default", "traces")
LOGS = Topic("default", "logs")
METRICS = Topic("default", "metrics")
MORNING_NS = 1_767_254_400_000_000_000  # 2026-01-01T08:00:00Z
HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
WAIT_S = PATIENCE_S
_SETTINGS = StoreSettings(segment=SegmentSettings(max_open_s=100_000.0))


def spans(*numbers: int, service: str = "shop", start_ns: int = MORNING_NS) -> bytes:
    """A request with a span for each number, an hour apart."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = service
    scope = resource.scope_spans.add()
    for number in numbers:
        at = start_ns + number * HOUR_NS
        span = scope.spans.add(name=f"span {number}", span_id=number.to_bytes(8, "big"))
        span.trace_id = trace_id(number)
        span.start_time_unix_nano, span.end_time_unix_nano = at, at + 5
        span.attributes.add(key="number").value.int_value = number
        span.events.add(name="done", time_unix_nano=at + 1)
    return request.SerializeToString()


def trace_id(number: int) -> bytes:
    """Of the span of that number."""
    return hashlib.sha256(b"%d" % number).digest()[:16]


@dataclass
class Data:
    """A data directory that tests fill, segment by segment."""

    root: Path

    def __post_init__(self) -> None:
        DataDirectory(self.root).create()

    def folder(self, topic: Topic = TRACES, partition: int = 0) -> Path:
        """Where a partition's segments are."""
        return DataDirectory(self.root).partition(topic, partition).segments_folder

    def segment(self, segment_seq: int, topic: Topic = TRACES, partition: int = 0) -> Path:
        """A segment's file."""
        return self.folder(topic, partition) / segment_name(segment_seq)

    def seal(self, *segments: Iterable[bytes], topic: Topic = TRACES, partition: int = 0) -> None:
        """Appends requests; each group becomes a segment."""
        folder = DataDirectory(self.root).partition(topic, partition).folder
        signal = next((s for s in Signal if s.value == topic.name), Signal.TRACES)
        env = Environment(metrics=Metrics(), memory=MemoryBound())
        with Store.open(folder, _SETTINGS, decoder=RequestDecoder(signal), env=env) as store:
            for requests in segments:
                for request in requests:
                    store.append(request)
                store.flush(WAIT_S)

    def read(self, spark: SparkSession, schema: str | None = None, **options: Any) -> DataFrame:
        """`spark.read` of it."""
        reader = spark.read.format("penstock").options(**options)
        return (reader.schema(schema) if schema else reader).load(str(self.root))


def names(rows: DataFrame) -> list[str]:
    """The names of spans, sorted."""
    return sorted(row["name"] for row in rows.select("name").collect())


def named(*numbers: int) -> list[str]:
    """What `names` gives for the spans of these numbers."""
    return sorted(f"span {number}" for number in numbers)
