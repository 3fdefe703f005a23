"""The stateless queue: producers without a disk, object storage, one fenced consumer.

In come entries with metadata, which are durable when their batch and its place in the manifest are;
out they go in the order of sequences, each batch until it is acknowledged.

    entry, batch, format, keys, ulid    every byte, and every name
    manifest, changes, chunks    the one object that decides, and what may happen to it
    entries, fetch        entries by their sequence; the batch that one names
    filling, uploader, appender, producer    from calls to a batch, and to its place
    read_ahead, consumer  batches in order, for the one whose epoch it is
    gc, verify, inspector what may go, what is damaged, what waits
    blocking              producer and consumer for callers without an event loop
    otlp                  the metadata of OTLP requests
    pauses, watcher       waiting: to try again, and for what is durable
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy import lazily

if TYPE_CHECKING:
    from penstock.queue.blocking import Consumer, Producer, fetch_batches
    from penstock.queue.consumer import AsyncConsumer
    from penstock.queue.entry import Entry, Metadata
    from penstock.queue.fetch import ConsumedBatch, fetch_batch
    from penstock.queue.gc import Collected, GarbageCollector
    from penstock.queue.inspector import Inspector, QueueStatus
    from penstock.queue.producer import AsyncProducer
    from penstock.queue.settings import (
        CompressionType,
        ConsumerSettings,
        GarbageSettings,
        ProducerSettings,
        QueueSettings,
    )
    from penstock.queue.verify import verify_queue
    from penstock.queue.watcher import DurabilityWatcher, WriteHandle
else:
    __getattr__ = lazily(
        __name__,
        {
            "blocking": "Consumer Producer fetch_batches",
            "consumer": "AsyncConsumer",
            "entry": "Entry Metadata",
            "fetch": "ConsumedBatch fetch_batch",
            "gc": "Collected GarbageCollector",
            "inspector": "Inspector QueueStatus",
            "producer": "AsyncProducer",
            "settings": "CompressionType ConsumerSettings GarbageSettings "
            "ProducerSettings QueueSettings",
            "verify": "verify_queue",
            "watcher": "DurabilityWatcher WriteHandle",
        },
    )

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "Collected",
    "CompressionType",
    "ConsumedBatch",
    "Consumer",
    "ConsumerSettings",
    "DurabilityWatcher",
    "Entry",
    "GarbageCollector",
    "GarbageSettings",
    "Inspector",
    "Metadata",
    "Producer",
    "ProducerSettings",
    "QueueSettings",
    "QueueStatus",
    "WriteHandle",
    "fetch_batch",
    "fetch_batches",
    "verify_queue",
]
