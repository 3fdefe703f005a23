"""The queue on each store: against bare puts, under contention, with much waiting, and how soon."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from dataclasses import replace
from statistics import mean, quantiles
from typing import TYPE_CHECKING

import harness
from harness import Row, Run
from objects_stores import Place, places
from penstock.metrics import Metrics, names
from penstock.model.clock import SystemClock
from penstock.queue import AsyncConsumer, AsyncProducer, ConsumerSettings, ProducerSettings
from penstock.queue.appender import Appender
from penstock.queue.changes import NewEntry, appended
from penstock.queue.entries import Entries
from penstock.queue.entry import Metadata, encode_body
from penstock.queue.format import Manifest, encode_chunk, encode_manifest
from penstock.queue.keys import batch_key, chunk_key
from penstock.queue.manifest import ManifestObject
from penstock.queue.pauses import Pauses
from penstock.queue.ulid import LOWEST, UlidSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.storage.objects import ObjectStore

MIB = 2**20
BATCH = os.urandom(4 * MIB)
SMALL = os.urandom(1024)
PRODUCERS = (1, 4, 16)
UPLOADS = 4
WAITING = (10, 10_000, 1_000_000)
MANIFEST = ProducerSettings().manifest_path
TAIL_BYTES = ProducerSettings().tail_bytes
_NUMBERS = itertools.count()


# --- throughput --------------------------------------------------------------------------------


def throughput(run: Run) -> Iterator[Row]:
    """Batches of 4 MiB, as many at a time as the bare puts have under way."""
    total = 16 if run.quick else 96
    with places(run) as found, harness.event_loop() as runner:
        for place in found:
            for producers in PRODUCERS:
                figures = run.medians(
                    {
                        "queue": lambda p=place, n=producers: runner.run(_queue_mb_s(p, n, total)),
                        "puts": lambda p=place, n=producers: runner.run(_puts_mb_s(p, n, total)),
                    }
                )
                name = f"{place.name}, 4 MiB batches, {_producers(producers)}"
                # In memory a put keeps a reference and copies nothing: no encoding reaches that.
                target = 0.8 if producers == 1 and place.name != "memory" else None
                puts = ("bare puts", figures["puts"])
                yield Row(name, figures["queue"], "MB/s", *puts, target=target)


async def _queue_mb_s(place: Place, producers: int, total: int) -> float:
    objects = place.open()
    settings = ProducerSettings(flush_size_bytes=0, max_buffered_inputs=2 * UPLOADS)
    opened = [
        await AsyncProducer.open(objects, settings, metrics=Metrics()) for _ in range(producers)
    ]
    each = max(1, total // producers)
    started = time.perf_counter()
    await asyncio.gather(*(_produce(producer, each) for producer in opened))
    took = time.perf_counter() - started
    await _empty(objects)
    return producers * each * len(BATCH) / 1e6 / took


async def _produce(producer: AsyncProducer, count: int) -> None:
    handles = [await producer.produce([BATCH]) for _ in range(count)]
    await producer.close()
    assert all(handle.watcher.result() for handle in handles)


async def _puts_mb_s(place: Place, producers: int, total: int) -> float:
    objects = place.open()
    each = max(1, total // producers)
    started = time.perf_counter()
    await asyncio.gather(*(_put(objects, number, each) for number in range(producers)))
    took = time.perf_counter() - started
    await _empty(objects)
    return producers * each * len(BATCH) / 1e6 / took


async def _put(objects: ObjectStore, number: int, count: int) -> None:
    left = iter(range(count))

    async def one_after_the_other() -> None:
        for at in left:
            await objects.put(f"ingest/{number}-{at}.batch", BATCH)

    await asyncio.gather(*(one_after_the_other() for _ in range(UPLOADS)))


# --- conflicts ---------------------------------------------------------------------------------


def conflicts(run: Run) -> Iterator[Row]:
    """Small batches: what is left is the contention for the manifest."""
    with places(run) as found, harness.event_loop() as runner:
        for place in found:
            for producers in PRODUCERS:
                rate, clashes, grouped = runner.run(_contend(run, place, producers))
                name = f"{place.name}, {_producers(producers)}"
                yield Row(f"{name}, appends", rate, "appends/s")
                yield Row(f"{name}, batches", rate * grouped, "batches/s")
                yield Row(f"{name}, conflicts an append", clashes, "", better="lower")


async def _contend(run: Run, place: Place, producers: int) -> tuple[float, float, float]:
    objects, metrics = place.open(), Metrics()
    settings = ProducerSettings(flush_size_bytes=0, max_buffered_inputs=64)
    opened = [
        await AsyncProducer.open(objects, settings, metrics=metrics) for _ in range(producers)
    ]
    until = time.perf_counter() + run.slice_s
    started = time.perf_counter()
    await asyncio.gather(*(_produce_until(producer, until) for producer in opened))
    took = time.perf_counter() - started
    await _empty(objects)
    counts = metrics.for_queue(MANIFEST).counts
    appends = counts[names.QUEUE_APPENDS]
    grouped = counts[names.QUEUE_ENQUEUED_BATCHES] / appends
    return appends / took, counts[names.QUEUE_CONFLICTS] / appends, grouped


async def _produce_until(producer: AsyncProducer, until: float) -> None:
    while time.perf_counter() < until:
        await producer.produce([SMALL])
    await producer.close()


# --- backlog -----------------------------------------------------------------------------------


def backlog(run: Run) -> Iterator[Row]:
    """One append, rolls included, with ever more waiting."""
    queues = {count: _queue_with(count) for count in WAITING}
    with places(run) as found, harness.event_loop() as runner:
        for place in found:
            stores = {count: runner.run(_stored(place, queue)) for count, queue in queues.items()}
            figures = run.medians(
                {
                    str(count): lambda n=count, s=stores: runner.run(
                        _append_us(run, s[n], queues[n][MANIFEST])
                    )
                    for count in WAITING
                }
            )
            least = figures[str(WAITING[0])]
            yield Row(f"{place.name}, append, {WAITING[0]} waiting", least, "µs", better="lower")
            for count in WAITING[1:]:
                figure = (figures[str(count)], "µs", f"{WAITING[0]} waiting", least)
                name = f"{place.name}, append, {count} waiting"
                yield Row(name, *figure, target=1.5, better="lower")


def _queue_with(count: int) -> dict[str, bytes]:
    """The objects of a queue in which so many wait; their batches are never asked for."""
    manifest = Manifest(version=2, epoch=0, next_sequence=0, first_sequence=0, queue_id=bytes(16))
    entry, objects = _entry(UlidSource(SystemClock(), random.Random(1))), dict[str, bytes]()
    while manifest.next_sequence < count:
        some = min(250, count - manifest.next_sequence)
        manifest = appended(manifest, [entry] * some, bytes(16), 1)
        if len(manifest.tail) > TAIL_BYTES:
            objects[chunk_key(MANIFEST, manifest.next_chunk)] = encode_chunk(manifest, LOWEST)
            after = {"tail": b"", "tail_count": 0, "next_chunk": manifest.next_chunk + 1}
            manifest = replace(manifest, **after)
    return objects | {MANIFEST: encode_manifest(manifest)}


async def _stored(place: Place, queue: dict[str, bytes]) -> ObjectStore:
    objects, left = place.open(), iter(queue.items())

    async def put_one_after_the_other() -> None:
        for key, data in left:
            await objects.put(key, data)

    await asyncio.gather(*(put_one_after_the_other() for _ in range(32)))
    return objects


def _entry(ids: UlidSource) -> NewEntry:
    batch_id = ids.next()
    location = batch_key("ingest", batch_id)
    metadata = (Metadata(0, time.time_ns() // 1_000_000, b"\x01\x01\x01\x00/default/traces"),)
    return NewEntry(batch_id, location, encode_body(location, metadata), 4096, 10, 1)


async def _append_us(run: Run, objects: ObjectStore, manifest: bytes) -> float:
    """The mean of many, from the same state each time."""
    await objects.put(MANIFEST, manifest)
    ids = UlidSource(SystemClock(), random.Random(1))
    appender = Appender(
        objects,
        ManifestObject(objects, ProducerSettings()),
        Entries(objects, MANIFEST),
        os.urandom(16),
        TAIL_BYTES,
        SystemClock(),
        Pauses(random.Random(1)),
        Metrics().for_queue(MANIFEST),
    )
    took = []
    for _ in range(50 if run.quick else 250):
        entry = _entry(ids)
        started = time.perf_counter()
        await appender.append(lambda entry=entry: [entry], lambda: False)
        took.append(time.perf_counter() - started)
    return mean(took) * 1e6


# --- latency -----------------------------------------------------------------------------------


def latency(run: Run) -> Iterator[Row]:
    """One entry of 1 KiB after the other; batches fill for 10 ms."""
    count = 50 if run.quick else 300
    with places(run) as found, harness.event_loop() as runner:
        for place in found:
            durable, consumed = runner.run(_latencies(place, count))
            for what, figures in (("durable", durable), ("consumed", consumed)):
                cuts = quantiles(figures, n=100)
                for share in (50, 99):
                    name = f"{place.name}, produce to {what}, p{share}"
                    yield Row(name, cuts[share - 1] * 1e3, "ms", better="lower")


async def _latencies(place: Place, count: int) -> tuple[list[float], list[float]]:
    objects, began = place.open(), dict[bytes, float]()
    durable, consumed = list[float](), list[float]()
    metrics = Metrics()
    settings = ConsumerSettings(gc_interval_s=None)
    producer = await AsyncProducer.open(
        objects, ProducerSettings(flush_interval_s=0.01), metrics=metrics
    )
    consumer = await AsyncConsumer.open(objects, settings, metrics=metrics)
    await consumer.initialize()

    async def consume() -> None:
        while len(consumed) < count:
            batch = await consumer.next_batch()
            if batch is None:
                await asyncio.sleep(0.002)
                continue
            consumed.extend(time.perf_counter() - began[each[:8]] for each in batch.entries)
            await consumer.ack(batch.sequence)

    consuming = asyncio.ensure_future(consume())
    for number in range(count):
        name = number.to_bytes(8, "big")
        began[name] = time.perf_counter()
        handle = await producer.produce([name + SMALL])
        await handle.watcher.await_durable()
        durable.append(time.perf_counter() - began[name])
    await consuming
    await producer.close()
    await consumer.close()
    await objects.close()
    return durable, consumed


# --- small parts -------------------------------------------------------------------------------


async def _empty(objects: ObjectStore) -> None:
    """What a measure stored would otherwise fill the memory, or the disk."""
    keys = [info.key async for info in objects.list("")]
    for start in range(0, len(keys), 500):
        await objects.delete(*keys[start : start + 500])
    await objects.close()


def _producers(count: int) -> str:
    return "1 producer" if count == 1 else f"{count} producers"
