"""The durable log of one topic partition.

The path of a message: `append` gives it the next offset and queues it; the log asks for a *turn*,
which a pool thread takes, or a caller that would only sleep; the turn writes everything that waits
with one write and one fdatasync, shows it to readers and wakes everyone who waited for it.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import threading
import uuid
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.log import checkpoint as ckpt
from penstock.log.cache import Batch, Cache
from penstock.log.commit import ALREADY, Append, Commit
from penstock.log.format import FRAME_BYTES
from penstock.log.inventory import LogFile, Lost
from penstock.log.pool import Pool, shared_pool
from penstock.log.reader import Location, Reader
from penstock.log.recovery import Recovered, recover
from penstock.log.retention import removable
from penstock.log.writer import FileWriter
from penstock.metrics import names, shared_metrics
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import (
    DiskFull,
    InvalidArgument,
    LogClosed,
    LogPoisoned,
    LogUnavailable,
    MessageTooLarge,
    OffsetUnavailable,
    QueueFull,
)
from penstock.model.settings import Durability, LogSettings
from penstock.storage.files import Files, LocalFiles, write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from penstock.metrics import Metrics
    from penstock.storage.files import Lock

_LOG = logging.getLogger(__name__)
_DISK_FULL_RETRY_S = 1.0
_RETENTION_CHECK_S = 60.0


class _Turn(enum.Enum):
    IDLE = enum.auto()
    GATHERING = enum.auto()
    """Something waits, but the commit still gathers (`commit_delay_s`)."""
    QUEUED = enum.auto()
    """Handed to the pool; the first to claim it runs it."""
    RUNNING = enum.auto()


class _Pending:
    """What the next turn will commit."""

    __slots__ = ("commit", "messages", "must_sync", "size")

    def __init__(self, commit: Commit) -> None:
        self.messages: list[bytes] = []
        self.size = 0
        self.commit = commit
        self.must_sync = False


class Log:
    """An append-only sequence of messages with contiguous offsets, safe to use from any thread.

    Durability: see `Durability`; by default `Append.durable` resolves after fdatasync. Readers see
    a message when its `durable` resolves (with `buffer`: when it was written), in the order of
    offsets. After LogPoisoned nothing more is taken: close the log and open it again.
    """

    def __init__(
        self,
        folder: Path | None,
        settings: LogSettings,
        recovered: Recovered,
        *,
        name: str,
        files: Files,
        clock: Clock,
        pool: Pool,
        metrics: Metrics,
        lock: Lock | None,
    ) -> None:
        """Use `Log.open` or `Log.in_memory`."""
        self.name = name
        self.settings = settings
        self.log_id = recovered.log_id or uuid.uuid4()
        self.lost: tuple[Lost, ...] = tuple(recovered.lost)
        self.torn_bytes = recovered.torn_bytes
        self._folder = folder
        self._files = files
        self._clock = clock
        self._pool = pool
        self._metrics = metrics.for_log(name)
        self._folder_lock = lock

        # Guarded by _lock, which is never held during I/O.
        self._lock = threading.Lock()
        self._next_offset = self._end_offset = recovered.next_offset
        self._sealed: tuple[LogFile, ...] = tuple(recovered.files)
        self._pending = _Pending(Commit(self._help))
        self._in_flight: _Pending | None = None
        self._queued_bytes = 0
        self._turn = _Turn.IDLE
        self._failure: LogUnavailable | None = None
        self._cache = Cache(settings.cache_bytes)
        self._floor = 0
        self._timers: set[str] = set()

        # Used by whoever has the turn, alone.
        self._writer: FileWriter | None = None
        self._last_commit_at = 0.0

        self._retaining = threading.Lock()

    # --- opening and closing -------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        folder: Path | str,
        settings: LogSettings | None = None,
        *,
        name: str | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        pool: Pool | None = None,
        metrics: Metrics | None = None,
    ) -> Log:
        """Opens or creates the log in `folder`, recovering what the last process left.

        LogLocked: another process writes to it. What recovery could not read is in `lost`.
        """
        folder = Path(folder).absolute()
        files, clock = files or LocalFiles(), clock or SystemClock()
        files.make_folder(folder)
        lock = files.lock(folder / ".lock")
        try:
            recovered = recover(files, folder, clock)
            log = cls(
                folder,
                settings or LogSettings(),
                recovered,
                name=name or str(folder),
                files=files,
                clock=clock,
                pool=pool or shared_pool(),
                metrics=metrics or shared_metrics(),
                lock=lock,
            )
            log._begin()
        except BaseException:
            lock.release()
            raise
        return log

    @classmethod
    def in_memory(
        cls,
        settings: LogSettings | None = None,
        *,
        name: str = "memory",
        clock: Clock | None = None,
        pool: Pool | None = None,
        metrics: Metrics | None = None,
    ) -> Log:
        """A log without files, for tests and pure streaming: keeps the newest `cache_bytes`."""
        return cls(
            None,
            settings or LogSettings(),
            Recovered(),
            name=name,
            files=LocalFiles(),
            clock=clock or SystemClock(),
            pool=pool or shared_pool(),
            metrics=metrics or shared_metrics(),
            lock=None,
        )

    def close(self) -> None:
        """Commits what waits, seals the file and lets the next owner in.

        Idempotent. Raises what kept the last messages from the disk; the log is closed all the same.
        """
        try:
            self.flush()
        except LogClosed:
            return
        finally:
            self._shut()

    async def close_async(self) -> None:
        """`close`, awaiting the last commit; the sealing at the end is short but blocks."""
        try:
            await self.flush_async()
        except LogClosed:
            return
        finally:
            self._shut()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- appending -----------------------------------------------------------------------------

    def append(self, message: bytes, *, wait: bool = True) -> Append:
        """Queues a message and returns its offset and what to wait for; does no I/O.

        A full queue makes it wait for the disk, or raise QueueFull without `wait`. Retry safety: a
        Retryable error, from here or from `durable`, says that the message is not in the log.
        """
        size = len(message) + FRAME_BYTES
        with self._lock:
            if self._failure is None and self._queued_bytes + size <= self.settings.queue_bytes:
                pending = self._pending
                pending.messages.append(message)
                pending.size += size
                self._queued_bytes += size
                offset = self._next_offset
                self._next_offset = offset + 1
                if self._turn is not _Turn.RUNNING and self._turn is not _Turn.QUEUED:
                    self._ask_for_turn()
                return Append(offset, pending.commit if self._acknowledges_late else ALREADY)
        return self._append_slowly([message], wait=wait)

    def append_many(self, messages: Sequence[bytes], *, wait: bool = True) -> Append:
        """Queues messages with consecutive offsets; `offset` is the first one's.

        They become durable, or fail, together. They must fit into the queue together.
        """
        if not messages:
            raise InvalidArgument("append_many needs at least one message")
        return self._append_slowly(list(messages), wait=wait)

    async def append_async(self, message: bytes) -> Append:
        """`append` for coroutines: a full queue suspends the task instead of the thread."""
        return await self.append_many_async([message])

    async def append_many_async(self, messages: Sequence[bytes]) -> Append:
        """`append_many` for coroutines. Cancelled while it waits for room, it has queued nothing."""
        while True:
            try:
                return self.append_many(messages, wait=False)
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

    # --- reading -------------------------------------------------------------------------------

    def read(
        self, start: int | Literal["earliest", "latest"] = "earliest", *, follow: bool = False
    ) -> Reader:
        """A reader from `start` on: to the present end, or with `follow` on and on.

        OffsetUnavailable: that offset was removed, or lies beyond the end.
        """
        earliest, end = self.start_offset, self.end_offset
        offset = {"earliest": earliest, "latest": end}.get(start, start)  # type: ignore[call-overload]  # an offset is no key
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise InvalidArgument(f"cannot read from {start!r}: earliest, latest or an offset")
        if not earliest <= offset <= end:
            text = f"offset {offset} is not in the log, which has {earliest} to {end}"
            raise OffsetUnavailable(text, earliest=earliest, end=end)
        return Reader(self, self._files, offset, follow=follow)

    @property
    def start_offset(self) -> int:
        """The oldest offset there is; equals `end_offset` in an empty log."""
        with self._lock:
            if self._folder is None:
                first = self._cache.first_offset
                return self._end_offset if first is None else first
            if self._sealed:
                return self._sealed[0].first_offset
            return self._writer.first_offset if self._writer else self._end_offset

    @property
    def end_offset(self) -> int:
        """One past the newest offset that readers may see."""
        return self._end_offset

    @property
    def size(self) -> int:
        """Bytes on disk, without zeros written ahead."""
        with self._lock:
            return self._size()

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting for the disk."""
        return self._queued_bytes

    @property
    def failure(self) -> LogUnavailable | None:
        """Why it takes no more messages; None while it does."""
        return self._failure

    @property
    def sealed_files(self) -> tuple[LogFile, ...]:
        """The finished files, oldest first."""
        return self._sealed

    def cached(self, offset: int) -> Batch | None:
        """Messages from memory, if it still has them."""
        with self._lock:
            return self._cache.get(offset)

    def locate(self, offset: int) -> Location | None:
        """The file that holds the offset; None where there is none."""
        with self._lock:
            for file in reversed(self._sealed):
                if file.first_offset <= offset < file.end_offset:
                    return Location(file.path, file.first_offset, file.end_offset, None)
            writer = self._writer
            if writer is None or not writer.first_offset <= offset < self._end_offset:
                return None
            return Location(writer.path, writer.first_offset, self._end_offset, writer.index)

    def next_commit(self, offset: int) -> Commit | None:
        """What to wait for when `offset` is not there yet; None when it is, or never will be."""
        with self._lock:
            if self._end_offset > offset or self._failure is not None:
                return None
            return self._oldest_pending().commit

    def check_readable(self) -> None:
        """Raises LogPoisoned: a reader at the end would wait for nothing."""
        if isinstance(self._failure, LogPoisoned):
            raise self._failure

    # --- forgetting ----------------------------------------------------------------------------

    def set_floor(self, offset: int) -> None:
        """Says that offsets below `offset` are safe elsewhere; retention may then remove them.

        Nothing at or above the highest floor ever set is removed. It is not stored: the owner sets
        it again after opening, from wherever the messages went.
        """
        with self._lock:
            self._floor = max(self._floor, offset)
        self._pool.submit(self.enforce_retention)

    def enforce_retention(self) -> int:
        """Removes the files that may go now; returns how many. Runs by itself in the background."""
        with self._retaining:
            with self._lock:
                now = self._clock.wall_ns()
                count = removable(self._sealed, self._floor, self._size(), now, self.settings)
                if self._writer is None and count == len(self._sealed):
                    # Invariant: some file's name carries the next offset, checkpoint or not.
                    count -= 1
                gone, self._sealed = self._sealed[: max(count, 0)], self._sealed[max(count, 0) :]
            for file in gone:
                with contextlib.suppress(FileNotFoundError):
                    self._files.remove(file.path)
                self._metrics.count(names.LOG_REMOVED_FILES)
            if gone:
                self._write_checkpoint()
        return len(gone)

    # --- the turn ------------------------------------------------------------------------------

    def _run_turn(self) -> None:
        """One group commit. The caller has set RUNNING, so it alone touches the writer."""
        with self._lock:
            batch, self._pending = self._pending, _Pending(Commit(self._help))
            self._in_flight = batch
        error = self._commit(batch)
        with self._lock:
            again = self._settle(batch, error)
            pending_too = self._pending if self._failure is not None else None
        if batch is not self._pending:
            batch.commit.resolve(error)
        if pending_too is not None:
            pending_too.commit.resolve(self._failure)
        if again:
            self._pool.submit(self._claim_turn)

    def _commit(self, batch: _Pending) -> Exception | None:
        """Writes the batch; returns what went wrong."""
        started = self._clock.monotonic()
        try:
            if self._folder is not None:
                self._write(batch)
        except DiskFull as error:
            self._metrics.count(names.LOG_DISK_FULL)
            return error
        except OSError as error:
            self._metrics.count(names.LOG_POISONED)
            _LOG.critical("%s: poisoned, no message is taken until it is reopened: %s", self.name, error)
            poisoned = LogPoisoned(f"{self.name}: a write or fsync failed ({error}); reopen the log")
            poisoned.__cause__ = error
            return poisoned
        if batch.messages:
            self._last_commit_at = self._clock.monotonic()
            self._metrics.committed(
                len(batch.messages), batch.size, self._last_commit_at - started
            )
        return None

    def _write(self, batch: _Pending) -> None:
        writer = self._writer_for(batch.size)
        if batch.messages:
            writer.write(batch.messages, batch.size)
        if batch.must_sync or self._sync_is_due(writer):
            writer.sync()
        elif writer.unsynced_bytes and self.settings.durability is Durability.INTERVAL:
            self._set_timer("sync", self.settings.sync_interval_s, self._sync_in_background)

    def _writer_for(self, size: int) -> FileWriter:
        """The file to write to: a new one where the present one is full or old."""
        writer = self._writer
        if writer is not None and writer.next_offset > writer.first_offset:
            full = size and writer.end + size > self.settings.rotate_bytes
            if full or self._is_old(writer):
                self._finish_file(writer)
                writer = None
        if writer is None:
            assert self._folder is not None
            writer = FileWriter.create(
                self._files, self._folder, self.log_id, self._end_offset, self._clock
            )
            with self._lock:
                self._writer = writer
            self._write_checkpoint()
            if self.settings.rotate_s is not None:
                self._set_timer("rotate", self.settings.rotate_s, self._rotate_in_background)
        return writer

    def _finish_file(self, writer: FileWriter) -> None:
        sealed = writer.seal(self._clock.wall_ns())
        with self._lock:
            self._sealed = (*self._sealed, sealed)
            self._writer = None
        self._metrics.count(names.LOG_ROTATIONS)
        self._pool.submit(self.enforce_retention)

    def _settle(self, batch: _Pending, error: Exception | None) -> bool:
        """Shows or undoes what `_commit` did, under the lock; says whether another turn is due."""
        self._in_flight = None
        if error is None:
            self._queued_bytes -= batch.size
            if batch.messages:
                self._cache.add(self._end_offset, batch.messages, batch.size)
                self._end_offset += len(batch.messages)
                if self._folder is not None:
                    self._set_timer("cache", self.settings.cache_idle_s, self._drop_idle_cache)
        elif isinstance(error, LogPoisoned):
            self._failure = error
            self._queued_bytes = 0
        elif self._acknowledges_late:
            # Everything behind the failed batch has offsets that now begin too high: it fails too.
            behind, self._pending = self._pending, _Pending(Commit(self._help))
            self._queued_bytes = 0
            self._next_offset = self._end_offset
            behind.commit.resolve(error)
        else:
            # Acknowledged already, so it is kept and tried again, before what came after it.
            behind = self._pending
            batch.messages += behind.messages
            batch.size += behind.size
            batch.must_sync |= behind.must_sync
            self._pending = batch
            self._turn = _Turn.GATHERING
            self._set_timer("retry", _DISK_FULL_RETRY_S, self._stop_gathering)
            behind.commit.resolve(error if behind.must_sync else None)
            return False
        again = self._failure is None and (bool(self._pending.messages) or self._pending.must_sync)
        self._turn = _Turn.QUEUED if again else _Turn.IDLE
        return again

    def _claim_turn(self) -> None:
        """Runs the turn if nobody else has claimed it."""
        with self._lock:
            if self._turn is not _Turn.QUEUED:
                return
            self._turn = _Turn.RUNNING
        self._run_turn()

    def _help(self, commit: Commit) -> None:
        """A caller that would sleep until `commit` claims the turn, which saves two thread switches."""
        with self._lock:
            if self._turn is not _Turn.QUEUED or self._pending.commit is not commit:
                return
            self._turn = _Turn.RUNNING
        self._run_turn()

    def _ask_for_turn(self) -> None:
        """Under the lock, with something pending and no turn queued or running."""
        pending, settings = self._pending, self.settings
        gather = settings.commit_delay_s > 0 and pending.size < settings.commit_bytes
        if gather and not pending.must_sync:
            if self._turn is _Turn.IDLE:
                self._turn = _Turn.GATHERING
                self._set_timer("gather", settings.commit_delay_s, self._stop_gathering)
            return
        self._turn = _Turn.QUEUED
        self._pool.submit(self._claim_turn)

    # --- small parts ---------------------------------------------------------------------------

    def _begin(self) -> None:
        """Makes the first file, so that the folder says which offset comes next."""
        for lost in self.lost:
            self._metrics.count(names.LOG_LOST_MESSAGES, lost.messages)
        if self.torn_bytes:
            self._metrics.count(names.LOG_TORN_BYTES, self.torn_bytes)
            _LOG.warning("%s: dropped %d bytes of an interrupted write", self.name, self.torn_bytes)
        with contextlib.suppress(DiskFull):  # reading works all the same; appends try again
            self._writer_for(0)
        if self.settings.retention_s is not None:
            self._set_timer("retention", _RETENTION_CHECK_S, self._retain_in_background)

    @property
    def _acknowledges_late(self) -> bool:
        return self.settings.durability is not Durability.BUFFER

    def _append_slowly(self, messages: list[bytes], *, wait: bool) -> Append:
        size = self._checked_size(messages)
        while True:
            with self._lock:
                if self._failure is not None:
                    raise self._failure
                if self._queued_bytes + size <= self.settings.queue_bytes:
                    pending = self._pending
                    pending.messages += messages
                    pending.size += size
                    self._queued_bytes += size
                    offset = self._next_offset
                    self._next_offset = offset + len(messages)
                    if self._turn in (_Turn.IDLE, _Turn.GATHERING):
                        self._ask_for_turn()
                    return Append(offset, pending.commit if self._acknowledges_late else ALREADY)
            if not wait:
                waiting = self._queued_bytes
                raise QueueFull(f"{waiting} bytes already wait for the disk", retry_after_s=0.1)
            self._oldest_commit().settle()

    def _checked_size(self, messages: list[bytes]) -> int:
        for message in messages:
            if len(message) > self.settings.max_message_bytes:
                limit = self.settings.max_message_bytes
                raise MessageTooLarge(f"a message of {len(message)} bytes; the limit is {limit}")
        size = sum(map(len, messages)) + FRAME_BYTES * len(messages)
        if size > self.settings.queue_bytes:
            raise MessageTooLarge(f"{size} bytes at once; queue_bytes is {self.settings.queue_bytes}")
        return size

    def _ask_for_flush(self) -> Commit | None:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            unsynced = self._writer.unsynced_bytes if self._writer is not None else 0
            if self._turn is _Turn.IDLE and not unsynced:
                return None
            self._pending.must_sync = True
            if self._turn in (_Turn.IDLE, _Turn.GATHERING):
                self._ask_for_turn()
            return self._pending.commit

    def _oldest_commit(self) -> Commit:
        with self._lock:
            return self._oldest_pending().commit

    def _oldest_pending(self) -> _Pending:
        return self._in_flight or self._pending

    def _sync_is_due(self, writer: FileWriter) -> bool:
        if self.settings.durability is Durability.SYNC:
            return writer.unsynced_bytes > 0
        interval = self.settings.durability is Durability.INTERVAL
        return interval and writer.unsynced_bytes >= self.settings.sync_bytes

    def _is_old(self, writer: FileWriter) -> bool:
        age = self._clock.monotonic() - writer.opened_at
        return self.settings.rotate_s is not None and age >= self.settings.rotate_s

    def _size(self) -> int:
        sealed = sum(file.size for file in self._sealed)
        return sealed + (self._writer.end if self._writer is not None else 0)

    def _write_checkpoint(self) -> None:
        """Best effort: a missing or old checkpoint costs time at the next opening, never data."""
        assert self._folder is not None
        with self._lock:
            sealed, end = self._sealed, self._end_offset
        data = ckpt.encode_checkpoint(self.log_id, end, sealed, self._clock.wall_ns())
        try:
            write_atomically(self._files, self._folder / ckpt.NAME, data)
        except OSError as error:
            self._metrics.count(names.LOG_CHECKPOINT_FAILURES)
            _LOG.warning("%s: no checkpoint: %s", self.name, error)

    def _shut(self) -> None:
        """Ends a log whose last turn is over. A poisoned one leaves its file to recovery."""
        with self._lock:
            if isinstance(self._failure, LogClosed):
                return
            poisoned = self._failure is not None
            self._failure = LogClosed(f"{self.name} is closed")
            pending, writer = self._pending, self._writer
        pending.commit.resolve(self._failure)
        try:
            if writer is not None and not poisoned:
                self._end_last_file(writer)
            elif writer is not None:
                writer.close()
        finally:
            if self._folder_lock is not None:
                self._folder_lock.release()

    def _end_last_file(self, writer: FileWriter) -> None:
        if writer.next_offset == writer.first_offset:
            writer.close()
            return
        try:
            sealed = writer.seal(self._clock.wall_ns())
        except DiskFull:
            writer.close()  # recovery seals it
            return
        with self._lock:
            self._sealed, self._writer = (*self._sealed, sealed), None
        self._write_checkpoint()

    # --- timers --------------------------------------------------------------------------------

    def _set_timer(self, kind: str, delay_s: float, action: object) -> None:
        """One timer of a kind at a time. It holds no log alive that everybody else let go."""
        if kind in self._timers:
            return
        self._timers.add(kind)
        method = weakref.WeakMethod(action)  # type: ignore[type-var]  # always a bound method here

        def fire() -> None:
            act = method()
            if act is not None:
                act.__self__._timers.discard(kind)  # type: ignore[attr-defined]
                act()  # type: ignore[operator]

        self._pool.call_later(delay_s, fire)

    def _stop_gathering(self) -> None:
        with self._lock:
            if self._turn is not _Turn.GATHERING or self._failure is not None:
                return
            self._turn = _Turn.QUEUED
        self._claim_turn()

    def _sync_in_background(self) -> None:
        with contextlib.suppress(LogUnavailable):
            self._ask_for_flush()

    def _rotate_in_background(self) -> None:
        with self._lock:
            writer = self._writer
            if writer is None or self._failure is not None:
                return
            left = self.settings.rotate_s - (self._clock.monotonic() - writer.opened_at)  # type: ignore[operator]  # set with rotate_s
            empty = writer.next_offset == writer.first_offset
            if left <= 0 and not empty and self._turn is _Turn.IDLE:
                self._turn = _Turn.QUEUED
                self._pool.submit(self._claim_turn)
        if left > 0 or empty:
            self._set_timer("rotate", max(left, 1.0), self._rotate_in_background)

    def _drop_idle_cache(self) -> None:
        with self._lock:
            left = self._last_commit_at + self.settings.cache_idle_s - self._clock.monotonic()
            if left <= 0:
                self._cache.clear()
        if left > 0:
            self._set_timer("cache", left, self._drop_idle_cache)

    def _retain_in_background(self) -> None:
        self.enforce_retention()
        if self._failure is None:
            self._set_timer("retention", _RETENTION_CHECK_S, self._retain_in_background)
