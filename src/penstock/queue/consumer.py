"""The consumer: claims the queue, hands out batches in order, and removes what was acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import random
from typing import TYPE_CHECKING

from penstock.metrics import Metrics, names, shared_metrics
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import (
    Fenced,
    InvalidArgument,
    ObjectChanged,
    ObjectsUnavailable,
    OffsetUnavailable,
    QueueClosed,
)
from penstock.queue.changes import claimed, dequeued
from penstock.queue.entries import Entries
from penstock.queue.gc import GarbageCollector
from penstock.queue.manifest import Loaded, ManifestObject
from penstock.queue.pauses import Pauses
from penstock.queue.read_ahead import ReadAhead
from penstock.queue.settings import ConsumerSettings

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.model.errors import PenstockError
    from penstock.queue.entry import Entry
    from penstock.queue.fetch import ConsumedBatch
    from penstock.queue.format import Manifest
    from penstock.queue.pauses import Sleep
    from penstock.storage.objects import ObjectStore

_LOG = logging.getLogger(__name__)


class AsyncConsumer:
    """Takes batches out of a queue. Belongs to the event loop that opened it.

    At most one consumer uses a queue: `initialize` fences the one before, whose every operation
    then raises Fenced, also when it slept through it. Batches come in the order of their sequences.
    Exactly once: store the sequence together with the data, and give it to `initialize`. Without
    that, at least once.
    """

    def __init__(
        self,
        objects: ObjectStore,
        manifest: ManifestObject,
        settings: ConsumerSettings,
        *,
        clock: Clock,
        randomness: random.Random,
        metrics: Metrics,
        sleep: Sleep,
    ) -> None:
        """Use `AsyncConsumer.open`."""
        self.settings = settings
        self._manifest = manifest
        self._entries = Entries(objects, settings.manifest_path)
        self._clock = clock
        self._sleep = sleep
        self._pauses = Pauses(randomness, sleep)
        self._metrics = metrics.for_queue(settings.manifest_path)
        self._metrics.gauges = self._gauges
        self._ahead = ReadAhead(objects, self._entries, settings)
        self._collector = GarbageCollector(
            objects, settings, clock=clock, randomness=randomness, metrics=metrics, sleep=sleep
        )
        self._collecting: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._dequeuing = asyncio.Lock()
        self._epoch: int | None = None
        self._over: PenstockError | None = None
        self._acked = -1
        self._seen: Manifest | None = None
        self._oldest: tuple[int, int] | None = None
        """Sequence and time of the oldest entry, as far as it was looked for."""

    # --- opening and closing -------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        objects: ObjectStore,
        settings: ConsumerSettings | None = None,
        *,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
        metrics: Metrics | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> AsyncConsumer:
        """Opens the queue, making it where there is none. Fences nobody: `initialize` does."""
        settings = settings or ConsumerSettings()
        manifest = ManifestObject(objects, settings)
        await manifest.open()
        return cls(
            objects,
            manifest,
            settings,
            clock=clock or SystemClock(),
            randomness=randomness or random.SystemRandom(),
            metrics=metrics or shared_metrics(),
            sleep=sleep,
        )

    async def initialize(self, last_acked_sequence: int | None = None) -> None:
        """Claims the queue, and goes on behind `last_acked_sequence`, or with the oldest entry.

        OffsetUnavailable, and nobody is fenced: the queue does not continue there. Safe to repeat;
        each call fences whoever claimed before. ObjectsUnavailable: call it again.
        """
        self._check_open()
        async with self._reading:
            claim, acked = await self._claim(last_acked_sequence)
            self._epoch, self._over, self._acked = claim.epoch, None, acked
            self._seen, self._oldest = claim, None
            self._ahead.restart(acked + 1)
        if self._collecting is None and self.settings.gc_interval_s is not None:
            self._collecting = asyncio.ensure_future(self._collect_forever())

    async def close(self, *, flush: bool = True) -> None:
        """Dequeues what was acknowledged and stops; without `flush` it only stops. Idempotent."""
        try:
            if flush and self._over is None and self._epoch is not None:
                with contextlib.suppress(Fenced):  # then the successor dequeues
                    await self.flush()
        finally:
            self._over = QueueClosed("the consumer is closed")
            if self._collecting is not None:
                self._collecting.cancel()
                await asyncio.gather(self._collecting, return_exceptions=True)
            await self._ahead.close()

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(flush=kind is None)

    # --- reading -------------------------------------------------------------------------------

    async def next_batch(self) -> ConsumedBatch | None:
        """The next batch, or None where there is none now.

        BatchMissing, BatchDamaged: it cannot be read; each call says so until `skip`. After any
        error, and when cancelled, the next call gives the same batch.
        """
        async with self._reading:
            manifest = (await self._look()).manifest
            await self._ahead.fill(manifest)
            await self._note_oldest(manifest)
            if self._ahead.position >= manifest.next_sequence:
                return None
            try:
                batch, waited = await self._ahead.first()
            except ObjectsUnavailable:
                raise
            except Exception:
                await self._look()  # a successor may have it removed
                raise
            if waited:
                await self._look()  # who was fenced meanwhile must not use it
            self._ahead.advance(batch.sequence + 1)
            self._metrics.count(names.QUEUE_CONSUMED_BATCHES)
            return batch

    async def peek(self, limit: int, *, after: int | None = None) -> list[Entry]:
        """Up to `limit` entries behind the sequence `after`, or behind the last one acknowledged.

        Fetches no batches: for callers that fetch them elsewhere (`fetch_batch`) and acknowledge
        with `ack_through`.
        """
        manifest = (await self._look()).manifest
        begin = max(self._acked if after is None else after, self._acked) + 1
        return await self._entries.read(manifest, begin, limit)

    async def skip(self, sequence: int) -> None:
        """Gives up a batch that `next_batch` could not read: it goes on behind it.

        The entries in it are lost to this consumer. It is acknowledged as any other.
        """
        async with self._reading:
            await self._look()
            if sequence != self._ahead.position:
                raise InvalidArgument(
                    f"the next batch has the sequence {self._ahead.position}, not {sequence}"
                )
            _LOG.warning("%s: the batch %d is skipped", self.settings.manifest_path, sequence)
            self._ahead.advance(sequence + 1)
            self._metrics.count(names.QUEUE_SKIPPED_BATCHES)

    # --- acknowledging -------------------------------------------------------------------------

    async def ack(self, sequence: int) -> None:
        """Says that a batch is processed; in order, or InvalidArgument.

        Every `acks_per_dequeue` of them are removed from the manifest at once. Where that fails for
        now, it is tried again with the next one.
        """
        if sequence != self._acked + 1:
            await self._look()
            raise InvalidArgument(f"ack {self._acked + 1} first, then {sequence}")
        if sequence >= self._ahead.position:
            await self._look()
            raise InvalidArgument(f"the batch {sequence} was not handed out yet")
        await self.ack_through(sequence)

    async def ack_through(self, sequence: int) -> None:
        """Says that all batches up to and with this one are processed, wherever they were read."""
        manifest = (await self._look()).manifest
        if not self._acked < sequence < manifest.next_sequence:
            newest = manifest.next_sequence - 1
            raise InvalidArgument(f"cannot ack {sequence}: {self._acked} is acked, {newest} newest")
        if self._ahead.position <= sequence:
            async with self._reading:
                self._ahead.advance(max(sequence + 1, self._ahead.position))
        self._acked = max(sequence, self._acked)
        if sequence + 1 - manifest.first_sequence >= self.settings.acks_per_dequeue:
            with contextlib.suppress(ObjectsUnavailable):  # nothing is lost; the next ack tries
                await self._dequeue()

    async def flush(self) -> None:
        """Removes everything that was acknowledged from the manifest. Safe to repeat."""
        await self._dequeue()

    @property
    def acked(self) -> int | None:
        """The last sequence acknowledged; None where there is none."""
        return self._acked if self._acked >= 0 else None

    async def _dequeue(self) -> None:
        async with self._dequeuing:
            gives_up_at = self._clock.monotonic() + self.settings.retry_s
            while True:
                loaded = await self._look()
                if loaded.manifest.first_sequence > self._acked:
                    return
                after = await self._without_acked(loaded.manifest)
                try:
                    await self._manifest.swap(loaded, after)
                except ObjectChanged:
                    await self._pauses.after_conflict()
                except ObjectsUnavailable:  # the next look tells whether it was done
                    if self._clock.monotonic() >= gives_up_at:
                        raise
                    await self._pauses.after_silence()
                else:
                    self._pauses.succeeded()
                    self._seen = after
                    self._entries.forget_before(after.first_chunk)
                    return

    async def _without_acked(self, manifest: Manifest) -> Manifest:
        last = await self._entries.one(manifest, self._acked)
        first_chunk = await self._entries.chunk_with(manifest, self._acked + 1)
        end_bytes = last.extent.end_bytes if last.extent is not None else 0
        return dequeued(manifest, self._acked, end_bytes, first_chunk)

    # --- fencing -------------------------------------------------------------------------------

    async def _look(self) -> Loaded:
        """The manifest as it is now, if this consumer may still use it."""
        self._check_open()
        if self._epoch is None:
            raise InvalidArgument("initialize the consumer first")
        if self._over is not None:
            raise copy.copy(self._over)
        loaded = await self._manifest.load()
        found = loaded.manifest.epoch
        if found != self._epoch:
            text = f"the queue was claimed by another consumer (epoch {found}, not {self._epoch})"
            self._over = Fenced(text)
            self._ahead.drop()
            raise copy.copy(self._over)
        self._seen = loaded.manifest
        return loaded

    async def _claim(self, last_acked: int | None) -> tuple[Manifest, int]:
        """The manifest with an epoch of this consumer, and the sequence to go on behind.

        A claim that was done and not answered is fenced by the next.
        """
        gives_up_at = self._clock.monotonic() + self.settings.retry_s
        while True:
            loaded = await self._manifest.load()
            acked = self._start(loaded.manifest, last_acked)
            try:
                after = await self._manifest.swap(loaded, claimed(loaded.manifest))
            except ObjectChanged:
                await self._pauses.after_conflict()
            except ObjectsUnavailable:
                if self._clock.monotonic() >= gives_up_at:
                    raise
                await self._pauses.after_silence()
            else:
                self._pauses.succeeded()
                return after.manifest, acked

    def _check_open(self) -> None:
        if isinstance(self._over, QueueClosed):
            raise copy.copy(self._over)

    def _start(self, manifest: Manifest, last_acked: int | None) -> int:
        """The sequence before the first that is wanted; -1 where that is 0."""
        first, end = manifest.first_sequence, manifest.next_sequence
        acked = first - 1 if last_acked is None else last_acked
        if not first - 1 <= acked < end:
            text = f"cannot go on behind {acked}: the queue has the sequences {first} to {end - 1}"
            raise OffsetUnavailable(text, earliest=first, end=end)
        return acked

    # --- in the background ---------------------------------------------------------------------

    async def _collect_forever(self) -> None:
        assert self.settings.gc_interval_s is not None
        while True:
            await self._sleep(self.settings.gc_interval_s)
            if self._over is not None:
                continue  # whoever has the queue now collects
            try:
                await self._collector.collect()
            except Exception:  # noqa: BLE001 - garbage costs space; consuming must go on
                _LOG.exception("%s: collecting garbage failed", self.settings.manifest_path)

    async def _note_oldest(self, manifest: Manifest) -> None:
        first = manifest.first_sequence
        if not manifest.waiting:
            self._oldest = None
        elif self._oldest is None or self._oldest[0] != first:
            entry = await self._entries.one(manifest, first)
            times = [item.ingestion_time_ms for item in entry.metadata]
            self._oldest = first, min(times, default=0)

    def _gauges(self) -> dict[str, float]:
        manifest = self._seen
        if manifest is None:
            return {}
        found: dict[str, float] = {names.QUEUE_LENGTH: manifest.waiting}
        if manifest.version != 1:
            waiting = manifest.enqueued_bytes - manifest.dequeued_bytes
            found[names.QUEUE_WAITING_BYTES] = waiting
        now_ms = self._clock.wall_ns() // 1_000_000
        age_ms = now_ms - self._oldest[1] if self._oldest is not None else 0
        return found | {names.QUEUE_OLDEST_SECONDS: max(age_ms, 0) / 1000}
