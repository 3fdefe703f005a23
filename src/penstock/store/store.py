"""A store: the log, the open segment and the sealed ones of one topic partition, in one object."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import logging
import os
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.log import Environment
from penstock.model.bundle import Bundle
from penstock.model.errors import (
    InvalidArgument,
    PenstockError,
    StoreClosed,
    StoreFull,
    StoreStopped,
)
from penstock.model.settings import KIB, StoreSettings
from penstock.model.slots import OTAP, SlotTable
from penstock.store.budget import Budget, EvenShare
from penstock.store.decoding import Decoder, PlainDecoder
from penstock.store.filling import Filling
from penstock.store.holdings import Holdings
from penstock.store.hub import Hub
from penstock.store.maintenance import Maintenance
from penstock.store.messages import encode_bundle, encode_raw
from penstock.store.registration import Registration
from penstock.store.status import StoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from penstock.log import Append
    from penstock.log.group_commit import Buffer
    from penstock.model.errors import LogPoisoned, StoreUnavailable
    from penstock.segment import SegmentInfo, SegmentReader, StoredBundle
    from penstock.store.registration import Start
    from penstock.store.status import SubscriberStatus
    from penstock.store.subscribers import Subscription

_LOG = logging.getLogger(__name__)
FREE_BYTES = 1024 * KIB
"""The least that is freed when the disk is full: not each message is to wait for a removal."""
CLOSE_S = 20.0
"""How long closing waits for the last seal."""


class Store:
    """Takes bundles, keeps them, and delivers them to every subscriber. Safe from any thread.

    Durability: `append` is as durable as its log (`Durability`, by default after fdatasync).
    Delivery: at least once, in the order of segments; a bundle comes when its segment is sealed.
    A segment is deleted when every subscriber has answered every bundle in it, and not before,
    unless `max_age_s` or `drop_oldest` say so; without subscribers everything is kept.
    """

    def __init__(
        self,
        held: Holdings,
        decoder: Decoder,
        slots: SlotTable,
        budget: Budget | None,
        make_room: Callable[[int], None] | None,
    ) -> None:
        """Use `Store.open`. What is on disk is open; here the parts begin that work on it."""
        self.name = held.name
        self.folder = held.folder
        self.settings = held.settings
        self.slots = slots
        self.log = held.log
        self.problems = held.problems
        """What was not as it should be when the store was opened."""
        self._held = held
        self._journal = held.journal
        self._failure: StoreUnavailable | None = None
        self._closing = False
        make_room = make_room or self.free
        self._hub = Hub(held, self._check, self._settled)
        self._registration = Registration(held, self._hub, self._check, self._settled)
        self._filling = Filling(
            held,
            decoder,
            slots,
            is_tight=lambda size: not self._maintenance.has_room(size),
            on_disk_full=make_room,
            on_sealed=self._sealed,
            on_failed=self._fail,
        )
        self._maintenance = Maintenance(held, budget, self._filling, self._hub.damaged, make_room)
        self._journal.on_poisoned(self._stop_without_answers)
        held.metrics.gauges = self._gauges
        _alive.add(self)
        self._filling.start()
        self._maintenance.start()

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
        env: Environment | None = None,
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
        folder, settings = Path(folder).absolute(), settings or StoreSettings()
        if budget is None and settings.budget_bytes is not None:
            budget = EvenShare(settings.budget_bytes)
        held = Holdings.open(
            folder,
            _with_small_log_files(settings, budget),
            name or str(folder),
            env or Environment(),
            least_offset=least_offset,
            keep_for=keep_for,
            registered=registered,
        )
        try:
            return cls(held, decoder or PlainDecoder(), slots, budget, make_room)
        except BaseException:
            held.close()
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
        self._held.metrics.gauges = None
        self._held.close()

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
        clock = self._held.env.clock
        until = None if timeout is None else clock.monotonic() + timeout
        target = self.log.end_offset
        while True:
            changed = self._filling.seal_through(target)
            if self._filling.sealed_through >= target:
                return
            self._check()
            left = None if until is None else until - clock.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("the last messages are not sealed yet")
            changed.settle(1.0 if left is None else min(left, 1.0))

    async def flush_async(self) -> None:
        """`flush` for coroutines."""
        await asyncio.to_thread(self.flush)

    # --- subscribers ---------------------------------------------------------------------------

    def subscribe(self, name: str, start: Start = "earliest") -> Subscription:
        """Registers the subscriber if it is new, activates it, and returns a way to its bundles.

        `start` is where a new one begins: with the oldest segment, with what is sealed from now
        on, or with a segment_seq. One that is known goes on where it was.
        """
        return self._registration.subscribe(name, start)

    def visit(self, name: str, start: Start = "earliest") -> Subscription:
        """As `subscribe`, but a new name becomes known with its first answer, durably with that.

        Until then nothing is kept for it, and when everybody who visits under it has gone nothing
        of it is left: a name that was mistyped costs nothing.
        """
        return self._registration.visit(name, start)

    def register(self, name: str, start: Start = "earliest") -> bool:
        """Makes the name known, durably: from now on everything is kept for it. False: it was."""
        return self._registration.register(name, start)

    def is_registered(self, name: str) -> bool:
        """Whether everything is kept for it until it has answered."""
        return self._registration.is_registered(name)

    def unregister(self, name: str) -> None:
        """Forgets the subscriber for good; what was kept for it alone may go."""
        self._registration.unregister(name)

    def activate(self, name: str) -> None:
        """Lets a registered subscriber receive."""
        self._registration.activate(name)

    def deactivate(self, name: str) -> None:
        """Takes back what it holds and delivers nothing; everything is kept for it."""
        self._registration.deactivate(name)

    def reset(self, name: str, start: Start = "earliest") -> None:
        """Begins anew from `start`, with what is still there."""
        self._registration.reset(name, start)

    def acknowledge_through(
        self,
        name: str,
        segment_seq: int,
        end_offset: int | None = None,
        sealed_at_ns: int | None = None,
    ) -> int:
        """Acks every bundle up to and with that segment, durably; says how many had no outcome.

        With `end_offset` and `sealed_at_ns` those of segments alone that end there or before, and
        were sealed then or before.

        For a subscriber that reads the segments' files by itself, whose every word is final.
        """
        return self._registration.acknowledge_through(name, segment_seq, end_offset, sealed_at_ns)

    def subscribers(self) -> list[SubscriberStatus]:
        """Every subscriber and its progress."""
        return self._registration.subscribers()

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
        return self._held.segments.reader(info)

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
        self._held.env.upkeep.submit(functools.partial(self._fail, stopped))

    def _sealed(self) -> None:
        self._hub.wake_all()
        self._maintenance.sealed()

    def _settled(self) -> None:
        self._maintenance.ask()

    def _gauges(self) -> list[tuple[str, tuple[str, ...], float]]:
        return self.status().gauges()


def _with_small_log_files(settings: StoreSettings, budget: Budget | None) -> StoreSettings:
    """A log file goes as a whole, so it must not be a large part of what the store may use."""
    limits = [settings.max_log_bytes, None if budget is None else budget.most_bytes]
    most = [max(64 * KIB, limit // 8) for limit in limits if limit is not None]
    log = replace(settings.log, rotate_bytes=min([settings.log.rotate_bytes, *most]))
    return replace(settings, log=log)


def _disown_all() -> None:
    for store in list(_alive):
        store.disown()


_alive: weakref.WeakSet[Store] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
