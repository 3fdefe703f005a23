"""A store: the log, the open segment and the sealed ones of one topic partition, in one object."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import logging
import os
import random
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.log import Log
from penstock.log.pool import shared_pool
from penstock.metrics import Metrics, shared_metrics
from penstock.model.bundle import Bundle
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import (
    DiskFull,
    InvalidArgument,
    PenstockError,
    StoreClosed,
    StoreFull,
    StoreStopped,
)
from penstock.model.settings import KIB, SizePolicy, StoreSettings
from penstock.model.slots import OTAP, SlotTable
from penstock.storage.files import LocalFiles
from penstock.store.ack_log import AckLog
from penstock.store.budget import Budget, EvenShare
from penstock.store.decoding import Decoder, PlainDecoder
from penstock.store.filling import Filling
from penstock.store.format import Reason, Registered, Removed
from penstock.store.hub import Hub
from penstock.store.jobs import shared_upkeep, shared_workers
from penstock.store.journal import Journal
from penstock.store.maintenance import Maintenance
from penstock.store.memory import MemoryBound, shared_memory_bound
from penstock.store.messages import encode_bundle, encode_raw
from penstock.store.recovery import Problem, recover
from penstock.store.registration import Registration
from penstock.store.segments import SegmentFolder
from penstock.store.status import StoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from penstock.log import Append
    from penstock.log.batch import Buffer
    from penstock.log.pool import Pool
    from penstock.model.errors import LogPoisoned, StoreUnavailable
    from penstock.segment import SegmentInfo, SegmentReader, StoredBundle
    from penstock.storage.files import Files, Lock
    from penstock.store.state import StoreState

_LOG = logging.getLogger(__name__)


class Store(Registration):
    """Takes bundles, keeps them, and delivers them to every subscriber. Safe from any thread.

    Durability: `append` is as durable as its log (`Durability`, by default after fdatasync).
    Delivery: at least once, in the order of segments; a bundle comes when its segment is sealed.
    A segment is deleted when every subscriber has answered every bundle in it, and not before,
    unless `max_age_s` or `drop_oldest` say so; without subscribers everything is kept.
    """

    def __init__(
        self,
        folder: Path,
        settings: StoreSettings,
        *,
        name: str,
        files: Files,
        clock: Clock,
        pool: Pool,
        workers: Pool,
        upkeep: Pool,
        metrics: Metrics,
        memory: MemoryBound,
        decoder: Decoder,
        slots: SlotTable,
        budget: Budget | None,
        jitter: random.Random,
        lock: Lock,
        least_offset: int,
        keep_for: Sequence[str],
        registered: Sequence[str],
        make_room: Callable[[int], None] | None,
    ) -> None:
        """Use `Store.open`."""
        self.name = name
        self.folder = folder
        self.settings = settings
        self.slots = slots
        self._clock = clock
        self._lock_file = lock
        self._failure: StoreUnavailable | None = None
        self._closing = False
        _alive.add(self)
        found = recover(files, folder, folder / "segments")
        self.problems: tuple[Problem, ...] = tuple(found.problems)
        """What was not as it should be when the store was opened."""
        state = found.state
        _make_known(state, registered)
        self._segments = SegmentFolder(files, folder / "segments")
        self.log = self._with_room(
            state,
            lambda: Log.open(
                folder / "log",
                settings.log,
                name=name,
                files=files,
                clock=clock,
                pool=pool,
                metrics=metrics,
                least_offset=max(state.sealed_offset, least_offset),
            ),
        )
        for party in keep_for:
            self.log.keep_for(party)
        self.problems += tuple(Problem(f"log/{lost.file}", str(lost)) for lost in self.log.lost)
        found.never_repeat(self.log.end_offset)
        acks = AckLog(
            folder,
            found.next_event,
            settings.log.durability,
            name=f"{name}/ack.log",
            files=files,
            clock=clock,
            pool=pool,
            metrics=metrics.for_log(f"{name}/ack.log"),
            on_poisoned=self._stop_without_answers,
        )
        self._upkeep = upkeep
        self._make_room = make_room
        self._journal = Journal(state, acks, settings.ack_log_bytes)
        try:
            # A new ack.log with the recovered state. Invariant: those of `registered` are durable
            # in it before anything is delivered, or removed for being delivered.
            self._with_room(state, lambda: self._journal.compact().wait())
            self._begin(clock, workers, metrics, memory, decoder, slots, budget, jitter)
        except BaseException:
            self.log.close()
            acks.close()
            raise

    def _begin(
        self,
        clock: Clock,
        workers: Pool,
        metrics: Metrics,
        memory: MemoryBound,
        decoder: Decoder,
        slots: SlotTable,
        budget: Budget | None,
        jitter: random.Random,
    ) -> None:
        self._metrics = metrics.for_store(self.name)
        self._hub = Hub(
            self._journal,
            self._segments,
            self.settings,
            clock=clock,
            random=jitter,
            pool=self._upkeep,
            check=self._check,
            on_settled=self._ask_for_maintenance,
        )
        self._filling = Filling(
            self.log,
            self._journal,
            self._segments,
            store_id=self._journal.state.store_id,
            decoder=decoder,
            slots=slots,
            settings=self.settings,
            aside_folder=self.folder / "aside",
            clock=clock,
            pool=workers,
            memory=memory,
            metrics=self._metrics,
            is_tight=lambda size: not self._maintenance.has_room(size),
            on_disk_full=self._make_room or self.free,
            on_sealed=self._sealed,
            on_failed=self._fail,
        )
        self._maintenance = Maintenance(
            self.log,
            self._journal,
            self._segments,
            budget,
            settings=self.settings,
            clock=clock,
            pool=self._upkeep,
            metrics=self._metrics,
            damaged=self._hub.damaged,
            seal_soon=self._filling.seal_soon,
            open_bytes=lambda: self._filling.open.nbytes,
            seal_waits=lambda: self._filling.waits_for_space,
            make_room=self._make_room or self.free,
        )
        self._metrics.gauges = self._gauges
        self._filling.start()
        self._maintenance.start()

    def _with_room(self, state: StoreState, act: Callable[[], _T]) -> _T:
        """What `act` gives; while the disk is full for it, what may go makes room."""
        for info, reason in self._expendable(state):
            try:
                return act()
            except DiskFull:
                # Should it crash before that is noted, who lacks the segment has it as lost.
                state.apply(Removed(reason, info.segment_seq, info.end_offset))
                self._segments.remove(info.segment_seq)
                _LOG.warning("%s: on a full disk it drops segment %d", self.name, info.segment_seq)
        return act()

    def _expendable(self, state: StoreState) -> list[tuple[SegmentInfo, Reason]]:
        """What may go for want of room, in this order: what everybody has, then by policy."""
        segments = list(state.segments.values())
        complete = [(info, Reason.ACKED) for info in segments if state.is_complete(info)]
        if self.settings.size_policy is not SizePolicy.DROP_OLDEST:
            return complete
        return complete + [(i, Reason.SIZE) for i in segments if not state.is_complete(i)]

    def disown(self) -> None:
        """In a forked child, where it belongs to the parent."""
        self._failure = StoreClosed(f"{self.name} was opened before the fork, by the parent")
        self._closing = True
        self._journal.lock = threading.RLock()  # the parent's may have been held at the fork

    # --- opening and closing -------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        folder: Path | str,
        settings: StoreSettings | None = None,
        *,
        name: str | None = None,
        decoder: Decoder | None = None,
        slots: SlotTable = OTAP,
        budget: Budget | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        pool: Pool | None = None,
        workers: Pool | None = None,
        upkeep: Pool | None = None,
        metrics: Metrics | None = None,
        memory: MemoryBound | None = None,
        jitter: random.Random | None = None,
        least_offset: int = 0,
        keep_for: Sequence[str] = (),
        registered: Sequence[str] = (),
        make_room: Callable[[int], None] | None = None,
    ) -> Store:
        """Opens or creates the store in `folder`, recovering what the last process left.

        LogLocked: another process has it open. What was damaged is in `problems`; everything
        readable is delivered all the same. No offset below `least_offset` is given out, and the log
        forgets nothing before each party of `keep_for` lets it. The subscribers of `registered` are
        known from the first segment on: none goes that one of them has not had. `make_room` is told
        how many bytes the disk itself lacks, in place of `free`; it must be quick.
        """
        folder = Path(folder).absolute()
        files, settings = files or LocalFiles(), settings or StoreSettings()
        if budget is None and settings.budget_bytes is not None:
            budget = EvenShare(settings.budget_bytes)
        settings = _with_small_log_files(settings, budget)
        files.make_folder(folder / "segments")
        lock = files.lock(folder / ".lock")
        try:
            return cls(
                folder,
                settings,
                name=name or str(folder),
                files=files,
                clock=clock or SystemClock(),
                pool=pool or shared_pool(),
                workers=workers or shared_workers(),
                upkeep=upkeep or workers or shared_upkeep(),
                metrics=metrics or shared_metrics(),
                memory=memory or shared_memory_bound(),
                decoder=decoder or PlainDecoder(),
                slots=slots,
                budget=budget,
                jitter=jitter or random.Random(),
                lock=lock,
                least_offset=least_offset,
                keep_for=keep_for,
                registered=registered,
                make_room=make_room,
            )
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Seals what is open, as far as the disk lets it, and lets the next owner in.

        Idempotent. What could not be sealed is in the log, and raises nothing.
        """
        if self._closing:
            return
        self._closing = True
        if self._failure is None:
            try:
                self.flush(timeout=CLOSE_S)
            except (PenstockError, OSError, TimeoutError) as error:
                _LOG.warning("%s: closed with something left in the log: %s", self.name, error)
        self._shut()

    async def close_async(self) -> None:
        """`close` for coroutines."""
        await asyncio.to_thread(self.close)

    def _shut(self) -> None:
        self._failure = self._failure or StoreClosed(f"{self.name} is closed")
        self._filling.stop()
        self._maintenance.stop()
        self._hub.wake_all()
        self._segments.forget()
        self._metrics.gauges = None
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock_file.release)
            stack.callback(self.log.close)
            stack.callback(self._journal.close)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- appending -----------------------------------------------------------------------------

    def append(self, item: Bundle | Buffer, *, block: bool = True) -> Append:
        """Queues a bundle, or what a client sent; returns its offset and what to wait for.

        At the disk limit it waits, or raises StoreFull without `block`. Retry safety: a Retryable
        error, from here or from `durable`, says that nothing was stored.
        """
        return self.log.append(self._admitted(item, block=block), block=block)

    def append_durable(self, item: Bundle | Buffer) -> int:
        """Appends and waits; returns the offset of the durable message."""
        return self.log.append_durable(self._admitted(item, block=True))

    async def append_async(self, item: Bundle | Buffer, *, timeout: float | None = None) -> Append:
        """`append` for coroutines: where there is no room the task waits, not the thread.

        StoreFull: there was none within the timeout. Cancelled while it waits, it stored nothing.
        """
        message = self._encode(item)
        self._check()
        if self._maintenance.has_room(len(message)) and self.log.has_room(len(message)):
            return await self.log.append_async(message)
        try:
            async with asyncio.timeout(timeout):
                await self._room_async(len(message))
                return await self.log.append_async(message)
        except TimeoutError:
            text = f"there was no room for {len(message)} bytes within {timeout} s"
            raise StoreFull(text, retry_after_s=1.0) from None

    async def _room_async(self, size: int) -> None:
        while not self._maintenance.has_room(size):
            chance = self._maintenance.next_chance()
            try:
                self._maintenance.wait_for_room(size, 0.0)
            except StoreFull:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):  # wait_for may swallow a cancellation
                        await chance.settle_async()
            self._check()

    def flush(self, timeout: float | None = None) -> None:
        """Returns when everything appended before is in a sealed segment.

        TimeoutError: not yet. StoreStopped: it will not be, until the store is opened again.
        """
        self._check()
        self.log.flush()
        until = None if timeout is None else self._clock.monotonic() + timeout
        target = self.log.end_offset
        while True:
            changed = self._filling.seal_through(target)
            if self._filling.sealed_through >= target:
                return
            self._check()
            left = None if until is None else until - self._clock.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("the last messages are not sealed yet")
            changed.settle(1.0 if left is None else min(left, 1.0))

    async def flush_async(self) -> None:
        """`flush` for coroutines."""
        await asyncio.to_thread(self.flush)

    # --- reading -------------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """The sealed segments that are there, oldest first."""
        with self._journal.lock:
            return tuple(self._journal.state.segments.values())

    def read_segment(self, segment_seq: int) -> SegmentReader:
        """A sealed segment, whoever has or has not acknowledged it. FileNotFoundError: none is."""
        info = self._journal.state.segments.get(segment_seq)
        if info is None:
            raise FileNotFoundError(f"{self.name} has no segment {segment_seq}")
        return self._segments.reader(info)

    def snapshot(self) -> tuple[tuple[SegmentInfo, ...], list[StoredBundle]]:
        """The sealed segments and the bundles of the open one: each bundle exactly once."""
        with self._journal.lock:
            return self.segments, list(self._filling.open)

    def status(self) -> StoreStatus:
        """The store as it is now."""
        return StoreStatus(
            self._maintenance.used_bytes,
            self._maintenance.limit_bytes,
            self._filling.open.nbytes,
            len(self._journal.state.segments),
            self._journal.depth,
            self._journal.size,
            self.subscribers(),
        )

    @property
    def failure(self) -> StoreUnavailable | None:
        """Why it takes and delivers nothing more; None while it does."""
        return self._failure

    @property
    def is_at_rest(self) -> bool:
        """Whether everything appended is in a segment, and nothing waits to be removed."""
        return self._filling.sealed_through >= self.log.end_offset and self._maintenance.is_at_rest

    def free(self, size: int) -> None:
        """Lets go of what may go, oldest first, until so many bytes are free; in the background.

        With `drop_oldest` that is any segment; with `backpressure` those that everybody has.
        """
        self._maintenance.free(max(size, FREE_BYTES))

    @property
    def shortage(self) -> str | None:
        """Why it takes nothing at present, for want of room; None while it does."""
        return self._maintenance.shortage

    # --- within --------------------------------------------------------------------------------

    def _admitted(self, item: Bundle | Buffer, *, block: bool) -> bytes:
        """The item's message, when there is room for it."""
        message = self._encode(item)
        self._check()
        if not self._maintenance.has_room(len(message)):
            self._maintenance.wait_for_room(len(message), None if block else 0.0)
            self._check()
        return message

    def _encode(self, item: Bundle | Buffer) -> bytes:
        if type(item) is bytes and item[:1] != b"\0":
            return item
        if isinstance(item, Bundle):
            self.slots.check(item)
            return encode_bundle(item)
        if isinstance(item, bytes | bytearray | memoryview):
            return encode_raw(item)
        raise InvalidArgument(f"a store takes a Bundle or bytes, not {type(item).__name__}")

    def _check(self) -> None:
        if self._failure is not None:
            raise copy.copy(self._failure)

    def _fail(self, stopped: StoreStopped) -> None:
        _LOG.critical("%s: %s", self.name, stopped, exc_info=stopped.__cause__)
        self._failure = self._failure or stopped
        self._maintenance.give_up()
        self._hub.wake_all()

    def _stop_without_answers(self, poisoned: LogPoisoned) -> None:
        """Nothing could be deleted any more. Called within a turn, where no lock may be taken."""
        stopped = StoreStopped(f"the store stopped: {poisoned}")
        stopped.__cause__ = poisoned
        self._failure = self._failure or stopped
        self._upkeep.submit(functools.partial(self._fail, stopped))

    def _sealed(self) -> None:
        self._hub.wake_all()
        self._maintenance.sealed()

    def _ask_for_maintenance(self) -> None:
        self._maintenance.ask()

    def _gauges(self) -> list[tuple[str, tuple[str, ...], float]]:
        return self.status().gauges()


FREE_BYTES = 1024 * KIB
"""The least that is freed when the disk is full: not each message is to wait for a removal."""
_T = TypeVar("_T")
CLOSE_S = 20.0
"""How long closing waits for the last seal."""


def _with_small_log_files(settings: StoreSettings, budget: Budget | None) -> StoreSettings:
    """A log file goes as a whole, so it must not be a large part of what the store may use."""
    limits = [settings.max_log_bytes, None if budget is None else budget.most_bytes]
    most = [max(64 * KIB, limit // 8) for limit in limits if limit is not None]
    log = replace(settings.log, rotate_bytes=min([settings.log.rotate_bytes, *most]))
    return replace(settings, log=log)


def _make_known(state: StoreState, names: Sequence[str]) -> None:
    """Registers who is not yet, from the oldest segment that is there."""
    for name in names:
        if state.named(name) is None:
            start = next(iter(state.segments), state.next_seq)
            state.apply(Registered(state.next_subscriber, start, name))


def _disown_all() -> None:
    for store in list(_alive):
        store.disown()


_alive: weakref.WeakSet[Store] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
