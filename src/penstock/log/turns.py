"""The turn: who commits, when, and what follows.

Whoever has something to commit asks for a turn, which a pool thread takes, or a caller that would
only sleep. The turn writes everything that waits, shows it to readers and wakes everyone who waited
for it. Turns of one log never overlap, so that what they write belongs to one thread at a time.
"""

from __future__ import annotations

import abc
import asyncio
import enum
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, TypeAlias

from penstock.log.batch import CommitBatch
from penstock.log.commit import ALREADY, Commit
from penstock.log.format import FRAME_BYTES
from penstock.log.pool import Pool, Timers
from penstock.metrics import LogMetrics, names
from penstock.model.errors import DiskFull, LogClosed, LogPoisoned, TooManyFiles
from penstock.model.settings import Durability, LogSettings

if TYPE_CHECKING:
    from penstock.model.clock import Clock
    from penstock.model.errors import LogUnavailable

_LOG = logging.getLogger(__name__)
_PUT_OFF_RETRY_S = 1.0
PutOff: TypeAlias = DiskFull | TooManyFiles
"""Nothing of the batch is in the log, and the log is as good as before."""
_alive: weakref.WeakSet[Turns] = weakref.WeakSet()


class Turn(enum.IntEnum):
    """Where a log's next commit is."""

    IDLE = 0
    GATHERING = 1
    """Something waits, but the commit still gathers (`commit_delay_s`) or waits for disk space."""
    QUEUED = 2
    """Handed to the pool; the first to claim it runs it."""
    RUNNING = 3
    OVER = 4
    """The log is closed."""


QUEUED = Turn.QUEUED
"""Looked up once for every append."""


class Turns(abc.ABC):
    """Commits batches in turns; a subclass says where messages go and who reads them."""

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
        self._committed_at = clock.monotonic()

        # Guarded by _lock, which is never held during I/O.
        self._lock = threading.Lock()
        self._end_offset = next_offset
        self._pending = self._new_batch(next_offset)
        self._in_flight: CommitBatch | None = None
        self._queued_bytes = 0
        self._room = settings.queue_bytes  # negative when nothing more is taken
        self._turn = Turn.IDLE
        self._gatherer: asyncio.AbstractEventLoop | None = None
        self._poison: LogPoisoned | None = None
        self._closed: LogClosed | None = None
        self._over = threading.Event()  # set when closing has ended
        _alive.add(self)

    # --- what a subclass does; the first two within a turn -------------------------------------

    @abc.abstractmethod
    def _write(self, batch: CommitBatch) -> None:
        """Writes the batch and syncs as the settings say. PutOff: it is not in the log."""

    @abc.abstractmethod
    def _show(self, batch: CommitBatch) -> None:
        """Lets readers see the batch. Called with the lock held."""

    @abc.abstractmethod
    def _has_unsynced(self) -> bool:
        """Whether a flush with nothing pending has anything to do."""

    # --- the turn ------------------------------------------------------------------------------

    def _run_turn(self) -> None:
        """One group commit. The caller has set RUNNING, so it alone writes."""
        try:
            self._run_whole_turn()
        except BaseException as error:
            self._abandon_turn(error)
            raise

    def _run_whole_turn(self) -> None:
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
            elif isinstance(error, PutOff) and not self._late:
                over = self._try_again_later(batch)
            else:
                over = self._undo(batch, error)
            again = self._decide_next_turn()
        for commit in over:
            commit.resolve(error)
        if again:
            self._pool.submit(self._claim_turn)

    def _abandon_turn(self, error: BaseException) -> None:
        """Poisons a log whose turn was interrupted (Ctrl-C): nobody knows what was written."""
        with self._lock:
            batch, self._in_flight = self._in_flight, None
            poisoned = self._poisoned_by(error)
            over = self._undo(batch or self._pending, poisoned)
            self._turn = Turn.IDLE
        for commit in over:
            commit.resolve(poisoned)

    def _commit(self, batch: CommitBatch) -> PutOff | LogPoisoned | None:
        """Writes the batch; returns what went wrong."""
        started = self._clock.monotonic()
        try:
            self._write(batch)
        except DiskFull as error:
            self._metrics.count(names.LOG_DISK_FULL)
            return error
        except TooManyFiles as error:
            _LOG.warning("%s: put off: %s", self.name, error)
            return error
        except Exception as error:  # noqa: BLE001 - whatever it was, the waiters must hear of it
            return self._poisoned_by(error)
        if batch.messages:
            self._committed_at = self._clock.monotonic()
            took = self._committed_at - started
            self._metrics.committed(len(batch.messages), batch.size, took)
        return None

    def _poisoned_by(self, error: BaseException) -> LogPoisoned:
        why = str(error) or type(error).__name__
        self._metrics.count(names.LOG_POISONED)
        _LOG.critical("%s: nothing more is taken until it is reopened: %s", self.name, why)
        poisoned = LogPoisoned(f"{self.name}: a write or fsync failed ({why}); reopen the log")
        poisoned.__cause__ = error
        return poisoned

    def _undo(self, batch: CommitBatch, error: PutOff | LogPoisoned) -> list[Commit]:
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
        self._turn = Turn.GATHERING
        self._timers.start("retry", _PUT_OFF_RETRY_S, self._stop_gathering)
        return [batch.commit, behind.commit]

    def _decide_next_turn(self) -> bool:
        """Whether the pool is to run another turn right away."""
        waiting = bool(self._pending.messages) or self._pending.must_sync
        if self._turn is Turn.RUNNING:
            self._turn = Turn.QUEUED if waiting else Turn.IDLE
        return self._turn is Turn.QUEUED

    def _claim_turn(self) -> None:
        """Runs the turn if nobody else has claimed it."""
        with self._lock:
            if self._turn is not Turn.QUEUED:
                return
            self._turn = Turn.RUNNING
        self._run_turn()

    def _help(self, commit: Commit) -> None:
        """A caller that would sleep until `commit` claims the turn instead."""
        with self._lock:
            if self._turn is not Turn.QUEUED or self._pending.commit is not commit:
                return
            self._turn = Turn.RUNNING
        self._run_turn()

    def _ask_for_turn(self) -> None:
        """Under the lock, with something pending and no turn queued or running."""
        settings = self.settings
        gather = settings.commit_delay_s > 0 and self._queued_bytes < settings.commit_bytes
        if gather and not self._pending.must_sync:
            if self._turn is Turn.IDLE:
                self._turn = Turn.GATHERING
                self._timers.start("gather", settings.commit_delay_s, self._stop_gathering)
            return
        self._queue_turn()

    def _ask_in_loop(self) -> None:
        """`_ask_for_turn` in a coroutine: what its loop runs before the turn shares the commit."""
        loop = asyncio.get_running_loop()
        if self._turn is Turn.IDLE and not self.settings.commit_delay_s:
            self._turn = Turn.GATHERING
            self._gatherer = loop
            loop.call_soon(self._leave_to_pool)
        elif self._gatherer is not loop:  # which may have been closed before it came to that
            self._ask_for_turn()

    def _leave_to_pool(self) -> None:
        with self._lock:
            self._gatherer = None
            if self._turn is Turn.GATHERING:
                self._queue_turn()

    def _queue_turn(self) -> None:
        self._turn = Turn.QUEUED
        self._pool.submit(self._claim_turn)

    def _stop_gathering(self) -> None:
        with self._lock:
            if self._turn is not Turn.GATHERING:
                return
            self._turn = Turn.RUNNING
        self._run_turn()

    def _ask_for_sync(self) -> None:
        """A turn that syncs, for a timer to ask for."""
        with self._lock:
            if self.failure is None:
                self._pending.must_sync = True
                if self._turn < QUEUED:
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
                return self._last_word(self._poison)
            self._pending.must_sync = True
            if self._turn < QUEUED:
                self._queue_turn()
            return self._pending.commit

    def _last_word(self, poison: LogPoisoned) -> Commit:
        """With `sync` everyone who lost a message was told; otherwise closing has to tell."""
        if self.settings.durability is Durability.SYNC:
            return ALREADY
        commit = Commit()
        commit.resolve(poison)
        return commit

    def _end_turns(self) -> None:
        """No turn begins after this. The last one is over: its commit has resolved."""
        with self._lock:
            self._turn = Turn.OVER
            pending = self._pending
        pending.commit.resolve(self._closed)

    def disown(self) -> None:
        """In a forked child, where it belongs to the parent: its file, its lock, its threads."""
        self._lock = threading.Lock()  # the parent's may have been held at the fork
        self._closed = LogClosed(f"{self.name} was opened before the fork, by the parent process")
        self._room, self._turn = -1, Turn.OVER
        self._over = threading.Event()
        self._over.set()

    # --- small parts ---------------------------------------------------------------------------

    def _new_batch(self, first_offset: int) -> CommitBatch:
        return CommitBatch(first_offset, Commit(self._help))


def _disown_all() -> None:
    for turns in list(_alive):
        turns.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
