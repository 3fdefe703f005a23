"""The blocking forms, on every kind of store."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.model.errors import Fenced, InvalidArgument, QueueClosed
from penstock.queue import (
    Consumer,
    ConsumerSettings,
    GarbageCollector,
    GarbageSettings,
    Inspector,
    Producer,
    ProducerSettings,
    fetch_batches,
)
from penstock.queue.blocking import run_blocking
from penstock.storage.objects import ObjectStore, open_objects
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.seaweed import S3Server

Opener = Callable[[], ObjectStore]
QUICK = ProducerSettings(flush_interval_s=0.005)
QUIET = ConsumerSettings(gc_interval_s=None, acks_per_dequeue=2)
_NUMBERS = itertools.count()


@pytest.fixture(params=["memory", "file", "s3"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same empty place each time."""
    if request.param == "memory":
        url = f"memory://queue-{next(_NUMBERS)}"
        return lambda: open_objects(url)
    if request.param == "file":
        return lambda: open_objects(tmp_path.as_uri())
    server: S3Server = request.getfixturevalue("s3")
    place, options = server.place(), server.options
    return lambda: open_objects(place, options)


def test_entries_go_through_every_store(opener: Opener) -> None:
    """From two producers to one consumer, with chunks, acknowledgement and collection."""
    objects = opener()
    settings = ProducerSettings(flush_interval_s=0.005, tail_bytes=500)
    with Producer.open(objects, settings) as one, Producer.open(opener(), settings) as two:
        for number in range(12):
            producer = (one, two)[number % 2]
            handle = producer.produce([b"%d" % number], b"about")
            handle.watcher.wait(PATIENCE_S)
            assert handle.watcher.sequence == number
    with Consumer.open(objects, QUIET) as consumer:
        consumer.initialize()
        batches = iter(consumer.next_batch, None)
        found = []
        for batch in batches:
            assert batch is not None
            found += batch.entries
            consumer.ack(batch.sequence)
        assert found == [b"%d" % number for number in range(12)]
    assert run_blocking(Inspector(objects).status()).waiting == 0
    collector = GarbageCollector(objects, GarbageSettings(gc_grace_period_s=0.0))
    assert run_blocking(collector.collect()).batches == 12


def test_consumer_is_fenced_on_every_store(opener: Opener) -> None:
    """By a successor with a connection of its own."""
    with Producer.open(opener(), QUICK) as producer:
        producer.produce([b"a"]).watcher.wait(PATIENCE_S)
    with Consumer.open(opener(), QUIET) as old, Consumer.open(opener(), QUIET) as new:
        old.initialize()
        assert old.next_batch() is not None
        new.initialize()
        with pytest.raises(Fenced):
            old.ack(0)
        entries = new.peek(10)
        assert [batch.entries for batch in fetch_batches(opener(), entries)] == [[b"a"]]
        new.ack_through(0)
        new.flush()
        assert (new.acked, new.next_batch()) == (0, None)


def test_url_opens_a_queue(tmp_path: Path) -> None:
    """The store is closed with it."""
    with penstock.Producer.open(tmp_path.as_uri(), QUICK) as producer:
        producer.produce([b"a"])
    with penstock.Consumer.open(tmp_path.as_uri(), QUIET) as consumer:
        consumer.initialize()
        assert consumer.next_batch().entries == [b"a"]
    with pytest.raises(InvalidArgument):
        Producer.open("nowhere")


def test_many_threads_share_one_producer() -> None:
    """Every entry arrives once."""
    objects = open_objects("memory://")
    with Producer.open(objects, QUICK) as producer, ThreadPoolExecutor(8) as threads:
        names = [b"%d" % number for number in range(200)]
        handles = list(threads.map(lambda name: producer.produce([name]), names))
        for handle in handles:
            handle.watcher.wait(PATIENCE_S)
    with Consumer.open(objects, QUIET) as consumer:
        consumer.initialize()
        found = [entry for batch in iter(consumer.next_batch, None) for entry in batch.entries]
    assert sorted(found) == sorted(names)


def test_waiting_can_be_given_up_and_begun_again() -> None:
    """A timeout changes nothing about the entries."""
    with Producer.open(
        open_objects("memory://"), ProducerSettings(flush_interval_s=3600.0)
    ) as producer:
        handle = producer.produce([b"a"])
        with pytest.raises(TimeoutError):
            handle.watcher.wait(0.01)
        waiter = threading.Thread(target=handle.watcher.wait)
        waiter.start()
        producer.flush()
        waiter.join(PATIENCE_S)
        assert handle.watcher.result()
    with pytest.raises(QueueClosed):
        producer.produce([b"b"])
