"""The queue for programs without an event loop: the same verbs, blocking, from any thread."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from typing import TYPE_CHECKING, TypeVar

from penstock.queue.consumer import AsyncConsumer
from penstock.queue.fetch import MAX_BATCH_BYTES, ConsumedBatch, fetch_batch
from penstock.queue.producer import AsyncProducer
from penstock.storage.objects import open_objects

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence
    from types import TracebackType

    from penstock.log.group_commit import Buffer
    from penstock.metrics import Metrics
    from penstock.model.clock import Clock
    from penstock.queue.entry import Entry
    from penstock.queue.settings import ConsumerSettings, ProducerSettings
    from penstock.queue.watcher import WriteHandle
    from penstock.storage.objects import ObjectStore

Result = TypeVar("Result")


def run_blocking(work: Coroutine[object, object, Result]) -> Result:
    """Runs a coroutine in the event loop that all blocking queues of the process share.

    Interrupted (Ctrl-C), it cancels the coroutine.
    """
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class Producer:
    """`AsyncProducer` for threads: see there for order, durability and failure."""

    def __init__(self, inner: AsyncProducer, owned: ObjectStore | None) -> None:
        """Use `Producer.open`."""
        self._inner = inner
        self._owned = owned

    @classmethod
    def open(
        cls,
        objects: ObjectStore | str,
        settings: ProducerSettings | None = None,
        *,
        options: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> Producer:
        """Opens the queue in a store or at a URL, making it where there is none."""
        store, owned = _store(objects, options)
        work = AsyncProducer.open(store, settings, clock=clock, metrics=metrics)
        return cls(run_blocking(work), owned)

    def produce(
        self, entries: Sequence[Buffer], metadata: Buffer = b"", *, block: bool = True
    ) -> WriteHandle:
        """Takes entries; `handle.watcher.wait()` returns when they are stored and enqueued.

        Where the buffer is full it waits, or raises QueueFull if told not to.
        """
        return run_blocking(self._inner.produce(entries, metadata, block=block))

    def flush(self) -> None:
        """Returns when everything produced before is decided; failures are on the handles."""
        run_blocking(self._inner.flush())

    def close(self) -> None:
        """Flushes, waits until every handle is decided, and takes nothing more. Idempotent."""
        run_blocking(self._inner.close())
        _give_back(self._owned)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Consumer:
    """`AsyncConsumer` for threads: see there for order, fencing and exactly once."""

    def __init__(self, inner: AsyncConsumer, owned: ObjectStore | None) -> None:
        """Use `Consumer.open`."""
        self._inner = inner
        self._owned = owned

    @classmethod
    def open(
        cls,
        objects: ObjectStore | str,
        settings: ConsumerSettings | None = None,
        *,
        options: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> Consumer:
        """Opens the queue in a store or at a URL. Fences nobody: `initialize` does."""
        store, owned = _store(objects, options)
        work = AsyncConsumer.open(store, settings, clock=clock, metrics=metrics)
        return cls(run_blocking(work), owned)

    def initialize(self, last_acked_sequence: int | None = None) -> None:
        """Claims the queue, and goes on behind that sequence, or with the oldest entry."""
        run_blocking(self._inner.initialize(last_acked_sequence))

    def next_batch(self) -> ConsumedBatch | None:
        """The next batch, or None where there is none now. After an error: the same again."""
        return run_blocking(self._inner.next_batch())

    def peek(self, limit: int, *, after: int | None = None) -> list[Entry]:
        """Up to `limit` entries behind `after`, or behind the last one acknowledged."""
        return run_blocking(self._inner.peek(limit, after=after))

    def skip(self, sequence: int) -> None:
        """Gives up a batch that `next_batch` could not read."""
        run_blocking(self._inner.skip(sequence))

    def ack(self, sequence: int) -> None:
        """Says that a batch is processed; in order."""
        run_blocking(self._inner.ack(sequence))

    def ack_through(self, sequence: int) -> None:
        """Says that all batches up to and with this one are processed."""
        run_blocking(self._inner.ack_through(sequence))

    def flush(self) -> None:
        """Removes everything that was acknowledged from the manifest."""
        run_blocking(self._inner.flush())

    @property
    def acked(self) -> int | None:
        """The last sequence acknowledged; None where there is none."""
        return self._inner.acked

    def close(self, *, flush: bool = True) -> None:
        """Dequeues what was acknowledged and stops; without `flush` it only stops."""
        try:
            run_blocking(self._inner.close(flush=flush))
        finally:
            _give_back(self._owned)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(flush=kind is None)


def fetch_batches(
    objects: ObjectStore, entries: Sequence[Entry], *, max_batch_bytes: int = MAX_BATCH_BYTES
) -> list[ConsumedBatch]:
    """The batches of these entries, in their order, fetched at the same time."""

    async def fetch() -> list[ConsumedBatch]:
        works = [fetch_batch(objects, each, max_batch_bytes=max_batch_bytes) for each in entries]
        return await asyncio.gather(*works)

    return run_blocking(fetch())


def _store(
    objects: ObjectStore | str, options: Mapping[str, str] | None
) -> tuple[ObjectStore, ObjectStore | None]:
    """The store, and the one to close in the end."""
    if isinstance(objects, str):
        opened = open_objects(objects, options)
        return opened, opened
    return objects, None


def _give_back(owned: ObjectStore | None) -> None:
    if owned is not None:
        run_blocking(owned.close())


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="penstock-queue", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):  # the thread stays with the parent
    os.register_at_fork(after_in_child=_loop.cache_clear)
