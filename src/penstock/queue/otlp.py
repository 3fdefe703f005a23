"""An OTLP request as an entry of the queue, and its topic and signal as the metadata.

entry    := the request's protobuf, as the client sent it
metadata := version:u8 (1) signal:u8 encoding:u8 (1: OTLP protobuf) reserved:u8 (0) topic
topic    := "/namespace/name" in UTF-8, to the end
signal   := 1 traces | 2 logs | 3 metrics
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.model.errors import Damaged, InvalidTopic, UnsupportedVersion
from penstock.model.topics import Topic
from penstock.otel.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.queue.fetch import ConsumedBatch

VERSION: Final = 1
OTLP_PROTOBUF: Final = 1

_HEAD = struct.Struct("<BBBB")
_NUMBERS = {Signal.TRACES: 1, Signal.LOGS: 2, Signal.METRICS: 3}
_SIGNALS = {number: signal for signal, number in _NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class Origin:
    """Which topic requests are for, and what they carry."""

    topic: Topic
    signal: Signal


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A request out of the queue."""

    origin: Origin
    ingestion_time_ms: int
    request: bytes


def encode_origin(origin: Origin) -> bytes:
    """The metadata to produce requests with."""
    head = _HEAD.pack(VERSION, _NUMBERS[origin.signal], OTLP_PROTOBUF, 0)
    return head + str(origin.topic).encode()


def decode_origin(metadata: bytes) -> Origin:
    """What the metadata say; Damaged where they are not those of OTLP requests."""
    if len(metadata) < _HEAD.size:
        raise Damaged(f"{len(metadata)} bytes are not the metadata of OTLP requests")
    version, signal, encoding, _ = _HEAD.unpack_from(metadata)
    if version != VERSION or encoding != OTLP_PROTOBUF:
        text = f"metadata version {version} with encoding {encoding}; this Penstock reads 1 and 1"
        raise UnsupportedVersion(text)
    if signal not in _SIGNALS:
        raise Damaged(f"metadata with the signal {signal}; 1 to 3 are known")
    try:
        topic = Topic.parse(metadata[_HEAD.size :].decode())
    except (UnicodeDecodeError, InvalidTopic) as error:
        raise Damaged(f"metadata without a topic: {error}") from None
    return Origin(topic, _SIGNALS[signal])


def requests_of(batch: ConsumedBatch) -> Iterator[QueuedRequest]:
    """The requests in a batch, in the order in which they were produced."""
    for item, requests in batch.ranges():
        origin = decode_origin(item.payload)
        for request in requests:
            yield QueuedRequest(origin, item.ingestion_time_ms, request)
