"""The producer: gathers entries into batches, stores those, and enqueues them in order."""

from __future__ import annotations

import asyncio
import copy
import logging
import random
from collections import deque
from typing import TYPE_CHECKING

from penstock.log.group_commit import Buffer, frozen
from penstock.metrics import Metrics, names, shared_metrics
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import (
    InvalidArgument,
    MessageTooLarge,
    OutcomeUnknown,
    PenstockError,
    QueueClosed,
    QueueFull,
    QueueUnreachable,
)
from penstock.queue.appender import Appender, Outcome
from penstock.queue.entries import Entries
from penstock.queue.filling import MAX_METADATA_BYTES, Filling
from penstock.queue.manifest import ManifestObject
from penstock.queue.pauses import Pauses
from penstock.queue.settings import ProducerSettings
from penstock.queue.uploader import Uploader
from penstock.queue.watcher import WriteHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from types import TracebackType

    from penstock.queue.changes import NewEntry
    from penstock.queue.pauses import Sleep
    from penstock.queue.ulid import Ulid
    from penstock.storage.objects import ObjectStore

_LOG = logging.getLogger(__name__)


class AsyncProducer:
    """Puts entries into a queue. Belongs to the event loop that opened it.

    Any number of producers, anywhere, may feed one queue. Entries of one producer are enqueued in
    the order of its calls, as far as they are enqueued at all: a batch that fails does not hold
    back the ones behind it. Nothing is kept on disk: what is not durable when the process dies is
    gone, and its caller was never told otherwise.
    """

    def __init__(
        self,
        objects: ObjectStore,
        manifest: ManifestObject,
        settings: ProducerSettings,
        *,
        version: int,
        floor: Ulid,
        clock: Clock,
        randomness: random.Random,
        metrics: Metrics,
        sleep: Sleep,
    ) -> None:
        """Use `AsyncProducer.open`."""
        self.settings = settings
        self._version = version
        self._clock = clock
        self._sleep = sleep
        self._metrics = metrics.for_queue(settings.manifest_path)
        self._manifest = manifest
        self._uploader = Uploader(
            objects, settings, version, floor, clock, randomness, sleep, self._metrics
        )
        self._appender = Appender(
            objects,
            manifest,
            Entries(objects, settings.manifest_path),
            randomness.randbytes(16),
            settings.tail_bytes,
            clock,
            Pauses(randomness, sleep),
            self._metrics,
        )
        self._filling: Filling | None = None
        self._line: deque[Filling] = deque()
        """Full batches in order; the first is the next to be enqueued."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._decided = asyncio.Event()
        """Set, and replaced, whenever handles were decided."""
        self._calls = 0
        self._bytes = 0
        self._failure: PenstockError | None = None
        self._closing: asyncio.Task[None] | None = None
        self._spawn(self._enqueue_forever)

    # --- opening and closing -------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        objects: ObjectStore,
        settings: ProducerSettings | None = None,
        *,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
        metrics: Metrics | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> AsyncProducer:
        """Opens the queue, making it where there is none. ManifestLost: there was one."""
        settings = settings or ProducerSettings()
        manifest = ManifestObject(objects, settings)
        loaded = await manifest.open()
        return cls(
            objects,
            manifest,
            settings,
            version=loaded.manifest.version,
            floor=loaded.manifest.floor,
            clock=clock or SystemClock(),
            randomness=randomness or random.SystemRandom(),
            metrics=metrics or shared_metrics(),
            sleep=sleep,
        )

    async def close(self) -> None:
        """Flushes, waits until every handle is decided, and takes nothing more. Idempotent.

        Failures are on the handles. Goes on when the caller is cancelled.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def abandon(self) -> None:
        """Stops at once, as a killed process would; handles that are open fail."""
        self._stop(OutcomeUnknown("the producer was abandoned"))
        await self._end_tasks()

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _close(self) -> None:
        self._failure = self._failure or QueueClosed("the producer is closed")
        self._seal()
        while self._line:
            await self._decided.wait()
        self._tell()
        await self._end_tasks()

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- producing -----------------------------------------------------------------------------

    async def produce(
        self, entries: Sequence[Buffer], metadata: Buffer = b"", *, block: bool = True
    ) -> WriteHandle:
        """Takes entries, in this order, with metadata that say what they are.

        Returns when they are buffered; the handle's watcher says when they are stored and enqueued.
        Where the buffer is full it waits, or raises QueueFull if told not to. Cancelled while it
        waits, it has taken nothing.
        """
        records, payload = [frozen(entry) for entry in entries], frozen(metadata)
        size = sum(map(len, records)) + len(payload)
        if not records:
            raise InvalidArgument("produce needs at least one entry")
        if size > self.settings.max_buffered_bytes:
            limit = self.settings.max_buffered_bytes
            raise MessageTooLarge(f"{size} bytes at once; max_buffered_bytes is {limit}")
        if len(payload) > MAX_METADATA_BYTES:
            text = f"metadata of {len(payload)} bytes; the limit is {MAX_METADATA_BYTES}"
            raise MessageTooLarge(text)
        while not self._has_room(size):
            if not block:
                raise QueueFull(f"{self._bytes} bytes already wait to be stored", retry_after_s=0.1)
            self._seal()  # what fills the buffer must not wait for its interval
            await self._decided.wait()
        return self._take(records, payload, size)

    async def flush(self) -> None:
        """Returns when everything produced before is decided; failures are on the handles."""
        self._seal()
        last = self._line[-1] if self._line else None
        while last is not None and not last.watcher.done:
            await self._decided.wait()

    @property
    def failure(self) -> PenstockError | None:
        """Why this producer takes nothing more; None while it does. Open a new one."""
        return self._failure

    @property
    def buffered_bytes(self) -> int:
        """Bytes of entries that are not decided yet."""
        return self._bytes

    def _has_room(self, size: int) -> bool:
        if self._failure is not None:
            raise copy.copy(self._failure)
        settings = self.settings
        fits = self._bytes + size <= settings.max_buffered_bytes
        return fits and self._calls < settings.max_buffered_inputs

    def _take(self, records: list[bytes], payload: bytes, size: int) -> WriteHandle:
        filling = self._filling
        if filling is None:
            filling = self._filling = Filling()
            filling.timer = self._spawn(self._seal_in_time, filling)
        filling.add(records, payload, self._clock.wall_ns() // 1_000_000)
        self._calls += 1
        self._bytes += size
        if filling.size > self.settings.flush_size_bytes or filling.has_much_metadata:
            self._seal()
        return WriteHandle(filling.watcher)

    # --- storing -------------------------------------------------------------------------------

    async def _seal_in_time(self, filling: Filling) -> None:
        await self._sleep(self.settings.flush_interval_s)
        filling.timer = None  # or sealing would cancel the task that does it
        if self._filling is filling:
            self._seal()

    def _seal(self) -> None:
        """Ends the batch that is filling; it is stored while the next one fills."""
        filling, self._filling = self._filling, None
        if filling is None:
            return
        if filling.timer is not None:
            filling.timer.cancel()
        filling.gives_up_at = self._clock.monotonic() + self.settings.retry_s
        self._line.append(filling)
        self._spawn(self._store, filling)

    async def _store(self, filling: Filling) -> None:
        await self._uploader.store(filling)
        self._changed.set()

    # --- enqueuing -----------------------------------------------------------------------------

    async def _enqueue_forever(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._enqueue()

    async def _enqueue(self) -> None:
        """Enqueues what is ready at the front of the line."""
        while self._line:
            first = self._line[0]
            if not first.watcher.done:
                if first.entry is None:
                    return
                await self._append(first)
            self._clear_the_front()

    async def _append(self, first: Filling) -> None:
        def is_over() -> bool:
            return self._clock.monotonic() >= first.gives_up_at

        outcome = await self._appender.append(self._ready, is_over)
        if outcome.is_empty and is_over():
            self._fail_first(first)
        else:
            await self._settle(outcome)

    def _ready(self) -> list[NewEntry]:
        """The entries at the front of the line whose batches are stored."""
        entries: list[NewEntry] = []
        for filling in self._line:
            if filling.entry is None:
                break
            entries.append(filling.entry)
        return entries

    async def _settle(self, outcome: Outcome) -> None:
        waiting = {filling.entry.batch_id: filling for filling in self._line if filling.entry}
        for entry, sequence in outcome.landed:
            if entry.batch_id in waiting:
                await self._acknowledge(waiting[entry.batch_id], entry, sequence)
        for entry in outcome.unknown:
            if entry.batch_id in waiting:
                self._leave_open(waiting[entry.batch_id])
        if outcome.stale:
            self._uploader.floor = (await self._manifest.known()).manifest.floor
        for entry in outcome.stale:
            waiting[entry.batch_id].entry = None
            self._metrics.count(names.QUEUE_REPEATED_UPLOADS)
            self._spawn(self._store, waiting[entry.batch_id])

    async def _acknowledge(self, filling: Filling, entry: NewEntry, sequence: int) -> None:
        """Version 1 has no floor: there the garbage collector may have been quicker."""
        if self._version == 1 and not await self._uploader.is_stored(filling, entry):
            self._leave_open(filling)
        else:
            filling.watcher.settle(sequence)

    def _fail_first(self, first: Filling) -> None:
        """Its time is over. An attempt that is still open decides what its callers hear."""
        unsure = {entry.batch_id for entry in self._appender.unsure}
        if first.entry is not None and first.entry.batch_id in unsure:
            self._leave_open(first)
            return
        self._metrics.count(names.QUEUE_FAILED_BATCHES)
        first.watcher.fail(QueueUnreachable("a batch could not be enqueued in time"))

    def _leave_open(self, filling: Filling) -> None:
        self._metrics.count(names.QUEUE_FAILED_BATCHES)
        text = "the answer to an append was lost: its entries may be in the queue or not"
        filling.watcher.fail(OutcomeUnknown(text))

    def _clear_the_front(self) -> None:
        """Takes what is decided out of the line, and tells who waits."""
        while self._line and self._line[0].watcher.done:
            filling = self._line.popleft()
            self._calls -= filling.calls
            self._bytes -= filling.size
        self._tell()

    def _tell(self) -> None:
        """Wakes whoever waits for room or for a decision."""
        self._decided.set()
        self._decided = asyncio.Event()

    # --- the end -------------------------------------------------------------------------------

    def _spawn(
        self, work: Callable[..., Coroutine[object, object, None]], *arguments: Filling
    ) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._guarded(work, *arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(
        self, work: Callable[..., Coroutine[object, object, None]], *arguments: Filling
    ) -> None:
        """Whatever ends a task of the producer ends the producer, and every handle hears of it."""
        try:
            await work(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it was, the handles must hear of it
            _LOG.error("%s: the producer has stopped: %s", self.settings.manifest_path, error)
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        if not isinstance(error, PenstockError):
            unknown = OutcomeUnknown(f"the producer has stopped: {error or type(error).__name__}")
            unknown.__cause__ = error
            error = unknown
        self._failure = error
        for filling in [*self._line, *([self._filling] if self._filling else [])]:
            if not filling.watcher.done:
                self._metrics.count(names.QUEUE_FAILED_BATCHES)
                filling.watcher.fail(error)
        self._line.clear()
        self._filling = None
        self._calls = self._bytes = 0
        self._tell()
