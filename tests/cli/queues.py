"""Small queues of known content in a folder."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from penstock.queue import Consumer, ConsumerSettings, Producer, ProducerSettings
from tests.patience import PATIENCE_S


def make_queue(url: str) -> str:
    """Three batches of two entries, one of them acknowledged."""
    with Producer.open(url, ProducerSettings(flush_interval_s=0.001)) as producer:
        for _ in range(3):
            producer.produce([b"one", b"two"], b"").watcher.wait(PATIENCE_S)
    with Consumer.open(url, ConsumerSettings(gc_interval_s=None)) as consumer:
        consumer.initialize()
        consumer.next_batch()
        consumer.ack(0)
    return url


def folder_of(url: str) -> Path:
    """Where a queue's objects are."""
    return Path(urlsplit(url).path)


def batches(url: str) -> list[Path]:
    """The files of the batches, oldest first."""
    return sorted(folder_of(url).rglob("*.batch"))
