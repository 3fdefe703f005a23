"""The queues in tests/fixtures/queue-v1 and queue-v2, as 0.1 wrote them.

`python -m tests.queue.fixture FOLDER VERSION`, with the code of 0.1 (commit 0c0dc7d), wrote them;
they are not written again. In each: four batches of two OTLP requests, the first consumed, of which
version 2 has the oldest two in a chunk of the manifest. The third batch is compressed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.model import Topic
from penstock.otel import Signal
from penstock.queue import (
    CompressionType,
    Consumer,
    ConsumerSettings,
    Producer,
    ProducerSettings,
)
from penstock.queue.otlp import Origin, encode_origin

TRACES = Topic("default", "traces")


def write(folder: Path, version: int) -> None:
    """A queue of that version."""
    for number in range(4):
        kind = CompressionType.ZSTD if number == 2 else CompressionType.NONE
        settings = ProducerSettings(
            manifest_version=version, flush_interval_s=0.001, batch_compression=kind, tail_bytes=150
        )
        with Producer.open(folder.as_uri(), settings) as producer:
            entries = [b"request %d" % each for each in (2 * number, 2 * number + 1)]
            origin = encode_origin(Origin(TRACES, Signal.TRACES))
            producer.produce(entries, origin).watcher.wait(60)
    with Consumer.open(folder.as_uri(), ConsumerSettings(gc_interval_s=None)) as consumer:
        consumer.initialize()
        consumer.next_batch()
        consumer.ack(0)


if __name__ == "__main__":
    write(Path(sys.argv[1]).absolute(), int(sys.argv[2]))
