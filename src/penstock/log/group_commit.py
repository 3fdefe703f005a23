"""Group commit: many appends, one write, one fdatasync, one wake-up per event loop.

An append gives its message the next offset and queues it; the log asks for a *turn*, which a pool
thread takes, or a caller that would only sleep. The turn writes everything that waits, shows it to
readers and wakes everyone who waited for it. Turns of one log never overlap, so that what they
write belongs to one thread at a time.
"""

from __future__ import annotations

import abc
import copy
import enum
import logging
import threading
from typing import TYPE_CHECKING

from penstock.log.batch import CommitBatch, frozen
from penstock.log.commit import ALREADY, Append, Commit, new_append
from penstock.log.format import FRAME_BYTES
from penstock.log.pool import Pool, Timers
from penstock.metrics import LogMetrics, names
from penstock.model.errors import (
    DiskFull,
    InvalidArgument,
    LogClosed,
    LogPoisoned,
    MessageTooLarge,
    QueueFull,
)
from penstock.model.settings import Durability, LogSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log.batch import Buffer
    from penstock.model.clock import Clock
    from penstock.model.errors import LogUnavailable

_LOG = logging.getLogger(__name__)
_DISK_FULL_RETRY_S = 1.0


class _Turn(enum.IntEnum):
    IDLE = 0
    GATHERING = 1
    """Something waits, but the commit still gathers (`commit_delay_s`) or waits for disk space."""
    QUEUED = 2
    """Handed to the pool; the first to claim it runs it."""
    RUNNING = 3
    OVER = 4
    """The log is closed."""


_QUEUED = _Turn.QUEUED  # looked up once for every append


class GroupCommit(abc.ABC):
    """The appending half of a log; a subclass says where messages go and who reads them."""

    def __init__(
        self,
        settings: LogSettings,
        next_offset: int,
        *,
        name: str,
        clock: Clock,
        pool: Pool,
        metrics: LogMetrics,
    ) -> None:
        self.name = name
        self.settings = settings
        self._clock = clock
        self._pool = pool
        self._timers = Timers(pool)
        self._metrics = metrics
        self._late = settings.durability is not Durability.BUFFER
        self._largest = settings.max_message_bytes + FRAME_BYTES

        # Guarded by _lock, which is never held during I/O.
        self._lock = threading.Lock()
        self._end_offset = next_offset
        self._pending = self._new_batch(next_offset)
        self._in_flight: CommitBatch | None = None
        self._queued_bytes = 0
        self._room = settings.queue_bytes  # negative when nothing more is taken
        self._turn = _Turn.IDLE
        self._poison: LogPoisoned | None = None
        self._closed: LogClosed | None = None

    # --- what a subclass does; the first two within a turn -------------------------------------

    @abc.abstractmethod
    def _write(self, batch: CommitBatch) -> None:
        """Writes the batch and syncs as the settings say. DiskFull: it is not in the log."""

    @abc.abstractmethod
    def _show(self, batch: CommitBatch) -> None:
        """Lets readers see the batch. Called with the lock held."""

    @abc.abstractmethod
    def _has_unsynced(self) -> bool:
        """Whether a flush with nothing pending has anything to do."""

    # --- appending -----------------------------------------------------------------------------

    def append(self, message: Buffer, *, block: bool = True) -> Append:
        """Queues a message and returns its offset and what to wait for; does no I/O.

        A full queue makes it wait for the disk, or raise QueueFull without `block`. Retry safety: a
        Retryable error, from here or from `durable`, says that the message is not in the log.
        """
        if type(message) is bytes:
            size = len(message) + FRAME_BYTES
            with self._lock:
                queued = self._queued_bytes + size
                if queued <= self._room and size <= self._largest:
                    self._queued_bytes = queued
                    batch = self._pending
                    messages = batch.messages
                    offset = batch.first_offset + len(messages)
                    messages.append(message)
                    if self._turn < _QUEUED:
                        self._ask_for_turn()
                    return new_append((offset, batch.commit if self._late else ALREADY))
        return self._append_slowly([message], block=block)

    def append_many(self, messages: Sequence[Buffer], *, block: bool = True) -> Append:
        """Queues messages with consecutive offsets; `offset` is the first one's.

        They become durable, or fail, together. They must fit into the queue together.
        """
        if not messages:
            raise InvalidArgument("append_many needs at least one message")
        return self._append_slowly(messages, block=block)

    def append_durable(self, message: Buffer) -> int:
        """Appends and waits; returns the offset of the durable message.

        The quickest way for a thread that appends one message at a time: where the disk is free
        the thread commits by itself, and saves the switch to another thread and back.
        """
        message = frozen(message)
        size = len(message) + FRAME_BYTES
        with self._lock:
            queued = self._queued_bytes + size
            batch = self._pending
            fits = queued <= self._room and size <= self._largest
            mine = fits and self._turn is _Turn.IDLE and not self.settings.commit_delay_s
            if mine:
                self._queued_bytes = queued
                batch.messages.append(message)
                self._turn = _Turn.RUNNING
        if not mine:
            append = self.append(message)
            append.durable.wait()
            return append.offset
        self._run_turn()
        if self._late:
            batch.commit.wait()
        return batch.first_offset

    async def append_async(self, message: Buffer) -> Append:
        """`append` for coroutines: a full queue suspends the task instead of the thread."""
        return await self.append_many_async([message])

    async def append_many_async(self, messages: Sequence[Buffer]) -> Append:
        """`append_many` for coroutines. Cancelled while it waits, it has queued nothing."""
        while True:
            try:
                return self.append_many(messages, block=False)
            except QueueFull:
                await self._oldest_commit().settle_async()

    def flush(self) -> None:
        """Returns when everything appended before is synced to disk, in every durability mode."""
        commit = self._ask_for_flush()
        if commit is not None:
            commit.wait()

    async def flush_async(self) -> None:
        """`flush` for coroutines."""
        commit = self._ask_for_flush()
        if commit is not None:
            await commit

    @property
    def next_offset(self) -> int:
        """The offset that the next append gets, if nobody appends or fails before."""
        with self._lock:
            return self._pending.end_offset

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting for the disk."""
        return self._queued_bytes

    # --- the turn ------------------------------------------------------------------------------

    def _run_turn(self) -> None:
        """One group commit. The caller has set RUNNING, so it alone writes."""
        with self._lock:
            batch = self._in_flight = self._pending
            batch.size = self._queued_bytes
            self._pending = self._new_batch(batch.end_offset)
        error = self._commit(batch)
        with self._lock:
            self._in_flight = None
            if error is None:
                self._queued_bytes -= batch.size
                self._end_offset = batch.end_offset
                self._show(batch)
                over = [batch.commit]
            elif isinstance(error, DiskFull) and not self._late:
                over = self._try_again_later(batch)
            else:
                over = self._undo(batch, error)
            again = self._decide_next_turn()
        for commit in over:
            commit.resolve(error)
        if again:
            self._pool.submit(self._claim_turn)

    def _commit(self, batch: CommitBatch) -> DiskFull | LogPoisoned | None:
        """Writes the batch; returns what went wrong."""
        started = self._clock.monotonic()
        try:
            self._write(batch)
        except DiskFull as error:
            self._metrics.count(names.LOG_DISK_FULL)
            return error
        except Exception as error:  # noqa: BLE001 - whatever it was, the waiters must hear of it
            self._metrics.count(names.LOG_POISONED)
            _LOG.critical("%s: nothing more is taken until it is reopened: %s", self.name, error)
            poisoned = LogPoisoned(
                f"{self.name}: a write or fsync failed ({error}); reopen the log"
            )
            poisoned.__cause__ = error
            return poisoned
        if batch.messages:
            took = self._clock.monotonic() - started
            self._metrics.committed(len(batch.messages), batch.size, took)
        return None

    def _undo(self, batch: CommitBatch, error: DiskFull | LogPoisoned) -> list[Commit]:
        """Fails the batch and what came behind it, whose offsets now begin too high."""
        behind, self._pending = self._pending, self._new_batch(self._end_offset)
        self._queued_bytes = 0
        if isinstance(error, LogPoisoned):
            self._poison = error
            self._room = -1
        return [batch.commit, behind.commit]

    def _try_again_later(self, batch: CommitBatch) -> list[Commit]:
        """Keeps what was acknowledged already, before what came behind it. Flushes fail."""
        behind = self._pending
        self._pending = self._new_batch(batch.first_offset)
        self._pending.messages = batch.messages + behind.messages
        self._turn = _Turn.GATHERING
        self._timers.start("retry", _DISK_FULL_RETRY_S, self._stop_gathering)
        return [batch.commit, behind.commit]

    def _decide_next_turn(self) -> bool:
        """Whether the pool is to run another turn right away."""
        waiting = bool(self._pending.messages) or self._pending.must_sync
        if self._turn is _Turn.RUNNING:
            self._turn = _Turn.QUEUED if waiting else _Turn.IDLE
        return self._turn is _Turn.QUEUED

    def _claim_turn(self) -> None:
        """Runs the turn if nobody else has claimed it."""
        with self._lock:
            if self._turn is not _Turn.QUEUED:
                return
            self._turn = _Turn.RUNNING
        self._run_turn()

    def _help(self, commit: Commit) -> None:
        """A caller that would sleep until `commit` claims the turn instead."""
        with self._lock:
            if self._turn is not _Turn.QUEUED or self._pending.commit is not commit:
                return
            self._turn = _Turn.RUNNING
        self._run_turn()

    def _ask_for_turn(self) -> None:
        """Under the lock, with something pending and no turn queued or running."""
        settings = self.settings
        gather = settings.commit_delay_s > 0 and self._queued_bytes < settings.commit_bytes
        if gather and not self._pending.must_sync:
            if self._turn is _Turn.IDLE:
                self._turn = _Turn.GATHERING
                self._timers.start("gather", settings.commit_delay_s, self._stop_gathering)
            return
        self._queue_turn()

    def _queue_turn(self) -> None:
        self._turn = _Turn.QUEUED
        self._pool.submit(self._claim_turn)

    def _stop_gathering(self) -> None:
        with self._lock:
            if self._turn is not _Turn.GATHERING:
                return
            self._turn = _Turn.RUNNING
        self._run_turn()

    def _ask_for_sync(self) -> None:
        """A turn that syncs, for a timer to ask for."""
        with self._lock:
            if self.failure is None:
                self._pending.must_sync = True
                if self._turn < _QUEUED:
                    self._queue_turn()

    # --- the end -------------------------------------------------------------------------------

    @property
    def failure(self) -> LogUnavailable | None:
        """Why it takes no more messages; None while it does."""
        return self._closed or self._poison

    def _refuse_from_now_on(self) -> Commit | None:
        """Begins closing: the commit to wait for, or None when that was begun before."""
        with self._lock:
            if self._closed is not None:
                return None
            self._closed = LogClosed(f"{self.name} is closed")
            self._room = -1
            if self._poison is not None:
                return ALREADY
            self._pending.must_sync = True
            if self._turn < _QUEUED:
                self._queue_turn()
            return self._pending.commit

    def _end_turns(self) -> None:
        """No turn begins after this. The last one is over: its commit has resolved."""
        with self._lock:
            self._turn = _Turn.OVER
            pending = self._pending
        pending.commit.resolve(self._closed)

    # --- small parts ---------------------------------------------------------------------------

    def _new_batch(self, first_offset: int) -> CommitBatch:
        return CommitBatch(first_offset, Commit(self._help))

    def _append_slowly(self, messages: Sequence[Buffer], *, block: bool) -> Append:
        """Appends any number of messages, waits for room, and says why something is refused."""
        kept = [frozen(message) for message in messages]
        size = self._checked_size(kept)
        while True:
            with self._lock:
                if self.failure is not None:
                    raise copy.copy(self.failure)
                if self._queued_bytes + size <= self._room:
                    self._queued_bytes += size
                    batch = self._pending
                    offset = batch.first_offset + len(batch.messages)
                    batch.messages += kept
                    if self._turn < _QUEUED:
                        self._ask_for_turn()
                    return Append(offset, batch.commit if self._late else ALREADY)
                waiting, commit = self._queued_bytes, (self._in_flight or self._pending).commit
            if not block:
                raise QueueFull(f"{waiting} bytes already wait for the disk", retry_after_s=0.1)
            commit.settle()

    def _checked_size(self, messages: list[bytes]) -> int:
        for message in messages:
            if len(message) > self.settings.max_message_bytes:
                limit = self.settings.max_message_bytes
                raise MessageTooLarge(f"a message of {len(message)} bytes; the limit is {limit}")
        size = sum(map(len, messages)) + FRAME_BYTES * len(messages)
        if size > self.settings.queue_bytes:
            raise MessageTooLarge(
                f"{size} bytes at once; queue_bytes is {self.settings.queue_bytes}"
            )
        return size

    def _ask_for_flush(self) -> Commit | None:
        """The commit after which everything is synced; None where it already is."""
        with self._lock:
            if self.failure is not None:
                raise copy.copy(self.failure)
            if self._turn is _Turn.IDLE and not self._has_unsynced():
                return None
            self._pending.must_sync = True
            if self._turn < _QUEUED:
                self._queue_turn()
            return self._pending.commit

    def _oldest_commit(self) -> Commit:
        with self._lock:
            return (self._in_flight or self._pending).commit
