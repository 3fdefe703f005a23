"""Group commit: many appends, one write, one fdatasync, one wake-up per event loop.

An append gives its message the next offset, queues it and asks for a turn, which a pool thread
takes, or a caller that would only sleep. The turn writes everything that waits, shows it to readers
and wakes everyone who waited for it. Turns of one log never overlap, so that what they write
belongs to one thread at a time. Where the messages go and who reads them, the owner says.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.log.commit import ALREADY, Append, Commit, new_tuple
from penstock.log.format import FRAME_BYTES
from penstock.log.pool import Timers
from penstock.metrics import names
from penstock.model.errors import (
    DiskFull,
    InvalidArgument,
    LogClosed,
    LogPoisoned,
    MessageTooLarge,
    QueueFull,
    TooManyFiles,
)
from penstock.model.settings import Durability

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.log.environment import Environment
    from penstock.model.errors import LogUnavailable
    from penstock.model.settings import LogSettings

_LOG = logging.getLogger(__name__)
_PUT_OFF_RETRY_S: Final = 1.0
Buffer: TypeAlias = bytes | bytearray | memoryview
PutOff: TypeAlias = DiskFull | TooManyFiles
"""Nothing of the batch is in the log, and the log is as good as before."""

IDLE, GATHERING, QUEUED, RUNNING, OVER = range(5)
"""Where the next commit is. Gathering: something waits, but for more (`commit_delay_s`) or for disk
space. Queued: handed to the pool; the first to claim it runs it. Over: the log is closed."""


class CommitBatch:
    """Messages that will be, or are being, committed together."""

    __slots__ = ("commit", "first_offset", "messages", "must_sync", "size")

    def __init__(self, first_offset: int, commit: Commit) -> None:
        self.first_offset = first_offset
        self.messages: list[bytes] = []
        self.size = 0
        """Bytes of all frames; known when the batch is taken."""
        self.must_sync = False
        self.commit = commit

    @property
    def end_offset(self) -> int:
        """One past the last message."""
        return self.first_offset + len(self.messages)


def frozen(message: Buffer) -> bytes:
    """The message as it is now, whatever its owner does with it until the commit."""
    if isinstance(message, bytes):
        return message
    if isinstance(message, bytearray | memoryview):
        return bytes(message)
    raise InvalidArgument(f"a message is bytes, not {type(message).__name__}")


class GroupCommit:
    """The queue of one log, and the turns in which it goes to the disk."""

    def __init__(
        self,
        settings: LogSettings,
        next_offset: int,
        name: str,
        env: Environment,
        *,
        write: Callable[[CommitBatch], None],
        show: Callable[[CommitBatch], None],
        has_unsynced: Callable[[], bool],
        on_poisoned: Callable[[LogPoisoned], None] = lambda _: None,
    ) -> None:
        """`write`, within a turn: to the disk, synced as the settings say; PutOff: it is not there.

        `show`, with the lock held: readers may see the batch. `has_unsynced`: whether a flush with
        nothing pending has anything to do. `on_poisoned`, with the lock held: must be quick.
        """
        self.settings = settings
        self._name = name
        self._clock = env.clock
        self._pool = env.pool
        self._metrics = env.metrics.for_log(name)
        self._write = write
        self._show = show
        self._has_unsynced = has_unsynced
        self._on_poisoned = on_poisoned
        self._timers = Timers(env.pool)
        self._late = settings.durability is not Durability.BUFFER
        self._largest = settings.max_message_bytes + FRAME_BYTES
        self.committed_at = env.clock.monotonic()

        # Guarded by the lock, which is never held during I/O.
        self.lock = threading.Lock()
        self.end_offset = next_offset
        """One past the newest message that readers may see."""
        self._pending = self._new_batch(next_offset)
        self.in_flight: CommitBatch | None = None
        """What the turn under way is writing."""
        self.queued_bytes = 0
        """Bytes that wait for the disk, those in flight included."""
        self._room = settings.queue_bytes  # negative when nothing more is taken
        self._turn = IDLE
        self._gatherer: asyncio.AbstractEventLoop | None = None
        self.poison: LogPoisoned | None = None
        self.closed: LogClosed | None = None
        self.over = threading.Event()
        """Set by the owner when closing has ended."""
        _alive.add(self)

    # --- appending -----------------------------------------------------------------------------

    def append(self, message: Buffer, block: bool = True) -> Append:
        """Queues a message and returns its offset and what to wait for; does no I/O."""
        if type(message) is bytes:
            size = len(message) + FRAME_BYTES
            with self.lock:
                queued = self.queued_bytes + size
                if queued <= self._room and size <= self._largest:
                    self.queued_bytes = queued
                    batch = self._pending
                    messages = batch.messages
                    offset = batch.first_offset + len(messages)
                    messages.append(message)
                    if self._turn < QUEUED:
                        self._ask_for_turn()
                    return new_tuple(Append, (offset, batch.commit if self._late else ALREADY))
        return self._append([message], block, self._ask_for_turn)

    def append_many(self, messages: Sequence[Buffer], block: bool = True) -> Append:
        """Queues messages with consecutive offsets, which become durable or fail together."""
        if not messages:
            raise InvalidArgument("append_many needs at least one message")
        return self._append(messages, block, self._ask_for_turn)

    async def append_many_async(self, messages: Sequence[Buffer]) -> Append:
        """The same; a full queue suspends the task. Cancelled meanwhile, it has queued nothing."""
        if not messages:
            raise InvalidArgument("append_many needs at least one message")
        while True:
            try:
                return self._append(messages, False, self._ask_in_loop)
            except QueueFull:
                await self.oldest_commit().settle_async()

    def append_durable(self, message: Buffer) -> int:
        """Appends and waits. Where the disk is free the caller's thread commits by itself."""
        message = frozen(message)
        size = len(message) + FRAME_BYTES
        with self.lock:
            queued = self.queued_bytes + size
            batch = self._pending
            fits = queued <= self._room and size <= self._largest
            mine = fits and self._turn == IDLE and not self.settings.commit_delay_s
            if mine:
                self.queued_bytes = queued
                batch.messages.append(message)
                self._turn = RUNNING
        if not mine:
            append = self.append(message)
            append.durable.wait()
            return append.offset
        self._run_turn()
        if self._late:
            batch.commit.wait()
        return batch.first_offset

    def _append(self, messages: Sequence[Buffer], block: bool, ask: Callable[[], None]) -> Append:
        """Appends any number of messages, waits for room, and says why something is refused."""
        kept = [frozen(message) for message in messages]
        size = self._checked_size(kept)
        while True:
            with self.lock:
                if self.failure is not None:
                    raise copy.copy(self.failure)
                if self.queued_bytes + size <= self._room:
                    self.queued_bytes += size
                    batch = self._pending
                    offset = batch.end_offset
                    batch.messages += kept
                    if self._turn < QUEUED:
                        ask()
                    return Append(offset, batch.commit if self._late else ALREADY)
                waiting, commit = self.queued_bytes, (self.in_flight or self._pending).commit
            if not block:
                raise QueueFull(f"{waiting} bytes already wait for the disk", retry_after_s=0.1)
            commit.settle()

    def _checked_size(self, messages: list[bytes]) -> int:
        limit, most = self.settings.max_message_bytes, self.settings.queue_bytes
        for message in messages:
            if len(message) > limit:
                raise MessageTooLarge(f"a message of {len(message)} bytes; the limit is {limit}")
        size = sum(map(len, messages)) + FRAME_BYTES * len(messages)
        if size > most:
            raise MessageTooLarge(f"{size} bytes at once; queue_bytes is {most}")
        return size

    def has_room(self, size: int) -> bool:
        """Whether a message of that size would be queued at once, as things stand."""
        return self.queued_bytes + size + FRAME_BYTES <= self._room

    @property
    def next_offset(self) -> int:
        """The offset that the next append gets, if nobody appends or fails before."""
        with self.lock:
            return self._pending.end_offset

    def oldest_commit(self) -> Commit:
        """The next one to resolve."""
        with self.lock:
            return (self.in_flight or self._pending).commit

    def commit_behind(self, offset: int) -> Commit | None:
        """What to wait for when `offset` is not there yet; None when it is, or never will be."""
        with self.lock:
            if self.end_offset > offset or self.failure is not None:
                return None
            return (self.in_flight or self._pending).commit

    # --- the turn ------------------------------------------------------------------------------

    def _run_turn(self) -> None:
        """One group commit. The caller has set RUNNING, so it alone writes."""
        try:
            self._run_whole_turn()
        except BaseException as error:
            self._abandon_turn(error)
            raise

    def _run_whole_turn(self) -> None:
        with self.lock:
            batch = self.in_flight = self._pending
            batch.size = self.queued_bytes
            self._pending = self._new_batch(batch.end_offset)
        error = self._commit(batch)
        with self.lock:
            self.in_flight = None
            if error is None:
                self.queued_bytes -= batch.size
                self.end_offset = batch.end_offset
                self._show(batch)
                over = [batch.commit]
            elif isinstance(error, PutOff) and not self._late:
                over = self._try_again_later(batch)
            else:
                over = self._undo(batch, error)
            again = self._decide_next_turn()
        # Here somebody is told that his message is durable. Without an error `write` has returned:
        # it is written, and synced where the settings say so. With one it is in no file that a
        # reader or a restart would trust.
        for commit in over:
            commit.resolve(error)
        if again:
            self._pool.submit(self._claim_turn)

    def _commit(self, batch: CommitBatch) -> PutOff | LogPoisoned | None:
        """Writes the batch; returns what went wrong."""
        started = self._clock.monotonic()
        try:
            self._write(batch)
        except DiskFull as error:
            self._metrics.count(names.LOG_DISK_FULL)
            return error
        except TooManyFiles as error:
            _LOG.warning("%s: put off: %s", self._name, error)
            return error
        except Exception as error:  # noqa: BLE001 - whatever it was, the waiters must hear of it
            return self._poisoned_by(error)
        if batch.messages:
            self.committed_at = self._clock.monotonic()
            took = self.committed_at - started
            self._metrics.committed(len(batch.messages), batch.size, took)
        return None

    def _abandon_turn(self, error: BaseException) -> None:
        """Poisons a log whose turn was interrupted (Ctrl-C): nobody knows what was written."""
        with self.lock:
            batch, self.in_flight = self.in_flight, None
            poisoned = self._poisoned_by(error)
            over = self._undo(batch or self._pending, poisoned)
            self._turn = IDLE
        for commit in over:
            commit.resolve(poisoned)

    def _poisoned_by(self, error: BaseException) -> LogPoisoned:
        why = str(error) or type(error).__name__
        self._metrics.count(names.LOG_POISONED)
        _LOG.critical("%s: nothing more is taken until it is reopened: %s", self._name, why)
        poisoned = LogPoisoned(f"{self._name}: a write or fsync failed ({why}); reopen the log")
        poisoned.__cause__ = error
        self._on_poisoned(poisoned)
        return poisoned

    def _undo(self, batch: CommitBatch, error: PutOff | LogPoisoned) -> list[Commit]:
        """Fails the batch and what came behind it, whose offsets now begin too high."""
        behind, self._pending = self._pending, self._new_batch(self.end_offset)
        self.queued_bytes = 0
        if isinstance(error, LogPoisoned):
            self.poison = error
            self._room = -1
        return [batch.commit, behind.commit]

    def _try_again_later(self, batch: CommitBatch) -> list[Commit]:
        """Keeps what was acknowledged already, before what came behind it. Flushes fail."""
        behind = self._pending
        self._pending = self._new_batch(batch.first_offset)
        self._pending.messages = batch.messages + behind.messages
        self._turn = GATHERING
        self._timers.start("retry", _PUT_OFF_RETRY_S, self._stop_gathering)
        return [batch.commit, behind.commit]

    # --- whose turn it is ----------------------------------------------------------------------

    def _decide_next_turn(self) -> bool:
        """Whether the pool is to run another turn right away."""
        waiting = bool(self._pending.messages) or self._pending.must_sync
        if self._turn == RUNNING:
            self._turn = QUEUED if waiting else IDLE
        return self._turn == QUEUED

    def _claim_turn(self, of: int = QUEUED, commit: Commit | None = None) -> None:
        """Runs the turn if nobody else has claimed it; with `commit`, if it would resolve that."""
        with self.lock:
            if self._turn != of or commit not in (None, self._pending.commit):
                return
            self._turn = RUNNING
        self._run_turn()

    def _help(self, commit: Commit) -> None:
        """A caller that would sleep until `commit` claims the turn instead."""
        self._claim_turn(QUEUED, commit)

    def _stop_gathering(self) -> None:
        self._claim_turn(GATHERING)

    def _ask_for_turn(self) -> None:
        """Under the lock, with something pending and no turn queued or running."""
        settings = self.settings
        gather = settings.commit_delay_s > 0 and self.queued_bytes < settings.commit_bytes
        if gather and not self._pending.must_sync:
            if self._turn == IDLE:
                self._turn = GATHERING
                self._timers.start("gather", settings.commit_delay_s, self._stop_gathering)
            return
        self._queue_turn()

    def _ask_in_loop(self) -> None:
        """`_ask_for_turn` in a coroutine: what its loop runs before the turn shares the commit."""
        loop = asyncio.get_running_loop()
        if self._turn == IDLE and not self.settings.commit_delay_s:
            self._turn = GATHERING
            self._gatherer = loop
            loop.call_soon(self._leave_to_pool)
        elif self._gatherer is not loop:  # which may have been closed before it came to that
            self._ask_for_turn()

    def _leave_to_pool(self) -> None:
        with self.lock:
            self._gatherer = None
            if self._turn == GATHERING:
                self._queue_turn()

    def _queue_turn(self) -> None:
        self._turn = QUEUED
        self._pool.submit(self._claim_turn)

    # --- syncing and closing -------------------------------------------------------------------

    def flush(self) -> Commit:
        """The commit after which everything appended before is synced, in every durability."""
        with self.lock:
            if self.failure is not None:
                raise copy.copy(self.failure)
            if self._turn == IDLE and not self._has_unsynced():
                return ALREADY
            return self._synced_turn()

    def sync_soon(self) -> None:
        """Asks for a turn that syncs, whether or not there is anything to write."""
        with self.lock:
            if self.failure is None:
                self._synced_turn()

    def _synced_turn(self) -> Commit:
        self._pending.must_sync = True
        if self._turn < QUEUED:
            self._queue_turn()
        return self._pending.commit

    @property
    def failure(self) -> LogUnavailable | None:
        """Why it takes no more messages; None while it does."""
        return self.closed or self.poison

    def close(self) -> Commit | None:
        """Takes nothing more: the last commit to wait for, or None when that was begun before.

        When it has resolved the owner calls `end`, gives back its files, and sets `over`.
        """
        with self.lock:
            if self.closed is not None:
                return None
            self.closed = LogClosed(f"{self._name} is closed")
            self._room = -1
            if self.poison is None:
                return self._synced_turn()
            if self.settings.durability is Durability.SYNC:
                return ALREADY  # everyone who lost a message was told; otherwise closing has to
            last = Commit()
            last.resolve(self.poison)
            return last

    def end(self) -> None:
        """No turn begins after this."""
        with self.lock:
            self._turn = OVER
            pending = self._pending
        pending.commit.resolve(self.closed)

    def disown(self) -> None:
        """In a forked child, where it belongs to the parent: its file, its lock, its threads."""
        self.lock = threading.Lock()  # the parent's may have been held at the fork
        self.closed = LogClosed(f"{self._name} was opened before the fork, by the parent process")
        self._room, self._turn = -1, OVER
        self.over = threading.Event()
        self.over.set()

    def _new_batch(self, first_offset: int) -> CommitBatch:
        return CommitBatch(first_offset, Commit(self._help))


def _disown_all() -> None:
    for each in list(_alive):
        each.disown()


_alive: weakref.WeakSet[GroupCommit] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
