"""Processes on a real S3 server, killed and stopped in the middle of their work."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

from penstock.queue import (
    Consumer,
    ConsumerSettings,
    GarbageCollector,
    GarbageSettings,
    Producer,
    ProducerSettings,
)
from penstock.queue.blocking import run_blocking
from penstock.storage.objects import open_objects
from tests.patience import PATIENCE_S
from tests.queue.processes import hear, say, start, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.seaweed import S3Server

QUIET = ConsumerSettings(gc_interval_s=None, acks_per_dequeue=5)
KILLED_AFTER = (3, 9, 20, 40)
"""Lines of acknowledgements; the killed producers are at work in all phases of others' appends."""


@contextlib.contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Ends it with the block."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged(process: subprocess.Popen[str], lines: int) -> list[str]:
    """The names that a producer said to be durable, in so many lines and until it was killed."""
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    process.kill()
    rest = process.stdout.read().splitlines(keepends=True)
    whole = [line for line in [*said, *rest] if line.endswith("\n")]
    return [name for line in whole for name in line.split()]


def drained(s3: S3Server, url: str) -> tuple[list[str], list[int]]:
    """Every entry there is, and the sequences, while garbage is collected."""
    entries, sequences = list[str](), list[int]()
    objects = open_objects(url, s3.options)
    collector = GarbageCollector(objects, GarbageSettings(gc_grace_period_s=0.0))
    with Consumer.open(objects, QUIET) as consumer:
        consumer.initialize()
        while (batch := consumer.next_batch()) is not None:
            entries += [entry.decode() for entry in batch.entries]
            sequences.append(batch.sequence)
            consumer.ack(batch.sequence)
            if batch.sequence % 20 == 0:
                run_blocking(collector.collect())
    return entries, sequences


def test_killed_producers_lose_nothing_that_they_acknowledged(s3: S3Server) -> None:
    """Four at once, each killed somewhere: what was durable is there, once, and in order."""
    url = s3.place()
    said: list[str] = []
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(running(start("produce", url, s3.options, f"p{number}")))
            for number in range(len(KILLED_AFTER))
        ]
        for process, lines in zip(started, KILLED_AFTER, strict=True):
            said += acknowledged(process, lines)
    found, sequences = drained(s3, url)
    assert sequences == list(range(len(sequences)))
    assert max(Counter(found).values()) == 1
    assert set(said) <= set(found)
    assert len(said) >= 3 * sum(KILLED_AFTER)
    for number in range(len(KILLED_AFTER)):
        mine = [name.split("-")[1:] for name in found if name.startswith(f"p{number}-")]
        assert mine == sorted(mine, key=lambda parts: (int(parts[0]), parts[1]))


def test_consumer_that_slept_through_its_fencing_is_fenced(s3: S3Server) -> None:
    """Stopped with a batch in its hands, and with one on its way; its successor has them all."""
    url = s3.place()
    settings = ProducerSettings(flush_interval_s=0.001)
    with Producer.open(url, settings, options=s3.options) as producer:
        for number in range(4):
            producer.produce([b"%d" % number]).watcher.wait(PATIENCE_S)
    with (
        running(start("consume", url, s3.options)) as old,
        running(start("consume", url, s3.options)) as new,
    ):
        assert tell(old, "initialize") == {"entries": None}
        assert tell(old, "next_batch") == {"entries": ["0"]}
        old.send_signal(signal.SIGSTOP)
        for command in ("next_batch", "ack 0", "flush", "next_batch"):
            say(old, command)
        assert tell(new, "initialize") == {"entries": None}
        assert tell(new, "next_batch") == {"entries": ["0"]}
        assert tell(new, "ack 0") == {"entries": None}
        old.send_signal(signal.SIGCONT)
        assert [hear(old) for _ in range(4)] == [{"error": "Fenced"}] * 4
        found = [tell(new, "next_batch") for _ in range(4)]
    assert found == [{"entries": [f"{number}"]} for number in (1, 2, 3)] + [{"entries": None}]


def test_server_killed_in_the_middle_loses_nothing(s3: S3Server) -> None:
    """The producer waits until it is back; nothing is enqueued twice."""
    url = s3.place()
    settings = ProducerSettings(flush_interval_s=0.001, retry_s=PATIENCE_S)
    with Producer.open(url, settings, options=s3.options) as producer:
        handles = [producer.produce([b"%d" % number]) for number in range(20)]
        s3.kill()
        handles += [producer.produce([b"%d" % number]) for number in range(20, 40)]
        s3.start()
        for handle in handles:
            handle.watcher.wait(PATIENCE_S)
    found, _ = drained(s3, url)
    assert found == [str(number) for number in range(40)]
