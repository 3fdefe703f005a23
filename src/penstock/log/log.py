"""The durable log of one topic partition: commits, files, cache and readers behind one door."""

from __future__ import annotations

import asyncio
import copy
import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.log.cache import Batch, Cache
from penstock.log.environment import Environment
from penstock.log.fileset import FileSet
from penstock.log.group_commit import GroupCommit
from penstock.log.pool import Timers
from penstock.log.reader import Location, Reader
from penstock.log.recovery import Recovered, recover
from penstock.metrics import names
from penstock.model.errors import DiskFull, InvalidArgument, OffsetUnavailable
from penstock.model.settings import Durability, LogSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from penstock.log.commit import Append, Commit
    from penstock.log.group_commit import Buffer, CommitBatch
    from penstock.log.inventory import LogFile, Lost
    from penstock.model.errors import LogUnavailable
    from penstock.storage.files import Lock

_LOG = logging.getLogger(__name__)
_RETENTION_CHECK_S = 60.0


class Log:
    """An append-only sequence of messages with contiguous offsets, safe to use from any thread.

    Durability: see `Durability`; by default `Append.durable` resolves after fdatasync. Readers see
    a message when its `durable` resolves (with `buffer`: when it was written), in the order of
    offsets. After LogPoisoned nothing more is taken: close the log and open it again.
    """

    def __init__(
        self,
        settings: LogSettings,
        next_offset: int,
        name: str,
        env: Environment,
        *,
        fileset: FileSet | None = None,
        folder_lock: Lock | None = None,
        lost: Sequence[Lost] = (),
    ) -> None:
        """Use `Log.open` or `Log.in_memory`."""
        self.name = name
        self.settings = settings
        self.lost = tuple(lost)
        """What could not be read when the log was opened, losses of earlier repairs included."""
        self._env = env
        self._commits = GroupCommit(
            settings,
            next_offset,
            name,
            env,
            write=self._write,
            show=self._show,
            has_unsynced=self._has_unsynced,
        )
        self._append = self._commits.append  # looked up once for every append
        self._fileset = fileset
        self._folder_lock = folder_lock
        self._cache = Cache(settings.cache_bytes)
        self._timers = Timers(env.pool)
        self._roll_asked = False
        self._on_commit: Callable[[int], None] | None = None
        self._on_disk_full: Callable[[int], None] | None = None
        self._sealed_before = fileset.sealed if fileset is not None else ()

    # --- opening and closing -------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        folder: Path | str,
        settings: LogSettings | None = None,
        *,
        name: str | None = None,
        env: Environment | None = None,
        least_offset: int = 0,
    ) -> Log:
        """Opens or creates the log in `folder`, recovering what the last process left.

        LogLocked: another process writes to it. What recovery could not read is in `lost`. No
        offset below `least_offset` is given out, whatever the folder holds.
        """
        folder, env = Path(folder).absolute(), env or Environment()
        settings, name = settings or LogSettings(), name or str(folder)
        env.files.make_folder(folder)
        lock = env.files.lock(folder / ".lock")
        try:
            found = recover(env.files, folder, env.clock)
            log_id = found.log_id or uuid.uuid4()
            next_offset = max(found.next_offset, least_offset)
            counters = env.metrics.for_log(name)
            fileset = FileSet(folder, log_id, found.files, next_offset, settings, env, counters)
            lost = found.lost + found.lost_before
            log = cls(
                settings, next_offset, name, env, fileset=fileset, folder_lock=lock, lost=lost
            )
            log._begin(fileset, found)
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
        env: Environment | None = None,
    ) -> Log:
        """A log without files, for tests and pure streaming: keeps the newest `cache_bytes`."""
        return cls(settings or LogSettings(), 0, name, env or Environment())

    def close(self) -> None:
        """Commits what waits, seals the file and lets the next owner in.

        Idempotent. Raises what kept the last messages from the disk; it is closed all the same.
        """
        last = self._commits.close()
        if last is None:
            self._commits.over.wait()  # somebody else is closing it
            return
        last.settle()
        self._shut()
        last.wait()

    async def close_async(self) -> None:
        """`close`, awaiting the last commit; the sealing after it is short, but blocks."""
        last = self._commits.close()
        if last is None:
            await asyncio.to_thread(self._commits.over.wait)
        else:
            await asyncio.shield(asyncio.ensure_future(self._finish_closing(last)))

    async def _finish_closing(self, last: Commit) -> None:
        """Goes on when the caller is cancelled: nobody could close the log after that."""
        await last.settle_async()
        self._shut()
        await last

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self, fileset: FileSet, found: Recovered) -> None:
        """Makes the first file, so that the folder says which offset comes next."""
        counters = self._env.metrics.for_log(self.name)
        for lost in found.lost:
            counters.count(names.LOG_LOST_MESSAGES, lost.messages)
        if found.torn_bytes:
            counters.count(names.LOG_TORN_BYTES, found.torn_bytes)
            _LOG.warning(
                "%s: dropped %d bytes of an interrupted write", self.name, found.torn_bytes
            )
        try:
            fileset.rotate()
        except DiskFull:
            _LOG.warning("%s: the disk is full; reading works, appends will try again", self.name)
        fileset.keep_up()
        self._time_rotation(fileset)
        if self.settings.retention_s is not None:
            self._timers.start("retention", _RETENTION_CHECK_S, self._retain_in_background)

    def _shut(self) -> None:
        self._commits.end()
        try:
            if self._fileset is not None:
                self._fileset.close(poisoned=self._commits.poison is not None)
        finally:
            if self._folder_lock is not None:
                self._folder_lock.release()
            self._commits.over.set()

    @property
    def failure(self) -> LogUnavailable | None:
        """Why it takes no more messages; None while it does."""
        return self._commits.failure

    # --- appending -----------------------------------------------------------------------------

    def append(self, message: Buffer, *, block: bool = True) -> Append:
        """Queues a message and returns its offset and what to wait for; does no I/O.

        A full queue makes it wait for the disk, or raise QueueFull without `block`. Retry safety: a
        Retryable error, from here or from `durable`, says that the message is not in the log.
        """
        return self._append(message, block)

    def append_many(self, messages: Sequence[Buffer], *, block: bool = True) -> Append:
        """Queues messages with consecutive offsets; `offset` is the first one's.

        They become durable, or fail, together. They must fit into the queue together.
        """
        return self._commits.append_many(messages, block)

    def append_durable(self, message: Buffer) -> int:
        """Appends and waits; returns the offset of the durable message.

        The quickest way for a thread that appends one message at a time: where the disk is free
        the thread commits by itself, and saves the switch to another thread and back.
        """
        return self._commits.append_durable(message)

    async def append_async(self, message: Buffer) -> Append:
        """`append` for coroutines: a full queue suspends the task instead of the thread."""
        return await self._commits.append_many_async([message])

    async def append_many_async(self, messages: Sequence[Buffer]) -> Append:
        """`append_many` for coroutines. Cancelled while it waits, it has queued nothing."""
        return await self._commits.append_many_async(messages)

    def flush(self) -> None:
        """Returns when everything appended before is synced to disk, in every durability mode."""
        self._commits.flush().wait()

    async def flush_async(self) -> None:
        """`flush` for coroutines."""
        await self._commits.flush()

    @property
    def next_offset(self) -> int:
        """The offset that the next append gets, if nobody appends or fails before."""
        return self._commits.next_offset

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting for the disk."""
        return self._commits.queued_bytes

    def has_room(self, size: int) -> bool:
        """Whether a message of that size would be queued at once, as things stand."""
        return self._commits.has_room(size)

    # --- reading -------------------------------------------------------------------------------

    def read(
        self, start: int | Literal["earliest", "latest"] = "earliest", *, follow: bool = False
    ) -> Reader:
        """A reader from `start` on: to the present end, or with `follow` on and on.

        OffsetUnavailable: that offset was removed, or lies beyond the end.
        """
        earliest, end = self.start_offset, self.end_offset
        named = {"earliest": earliest, "latest": end}
        offset = named.get(start) if isinstance(start, str) else start
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise InvalidArgument(f"cannot read from {start!r}: earliest, latest or an offset")
        if not earliest <= offset <= end:
            text = f"offset {offset} is not in the log, which has {earliest} to {end}"
            raise OffsetUnavailable(text, earliest=earliest, end=end)
        files = self._fileset.files if self._fileset is not None else self._env.files
        return Reader(self, files, offset, follow=follow)

    @property
    def start_offset(self) -> int:
        """The oldest offset there is; equals `end_offset` in an empty log."""
        if self._fileset is not None:
            return self._fileset.start_offset
        with self._commits.lock:
            first = self._cache.first_offset
            return self.end_offset if first is None else first

    @property
    def end_offset(self) -> int:
        """One past the newest offset that readers may see."""
        return self._commits.end_offset

    @property
    def size(self) -> int:
        """Bytes on disk, without zeros written ahead; in memory without a disk."""
        return self._fileset.size if self._fileset is not None else self._cache.size

    @property
    def disk_bytes(self) -> int:
        """Bytes on disk, and those that wait to be; each once."""
        if self._fileset is None:
            return 0
        commits = self._commits
        with commits.lock:
            flying, waiting = commits.in_flight, commits.queued_bytes
            if flying is not None and self._fileset.next_offset > commits.end_offset:
                waiting -= flying.size  # written, but not synced yet
            return self._fileset.size + waiting

    @property
    def sealed_files(self) -> tuple[LogFile, ...]:
        """The finished files, oldest first."""
        return self._fileset.sealed if self._fileset is not None else ()

    # --- what readers ask for ------------------------------------------------------------------

    def cached(self, offset: int) -> Batch | None:
        """Messages from memory, if it still has them."""
        with self._commits.lock:
            return self._cache.get(offset)

    def locate(self, offset: int) -> Location | None:
        """The file that holds the offset; None where there is none."""
        return self._fileset.locate(offset, self.end_offset) if self._fileset is not None else None

    def next_commit(self, offset: int) -> Commit | None:
        """What to wait for when `offset` is not there yet; None when it is, or never will be."""
        return self._commits.commit_behind(offset)

    def check_readable(self) -> None:
        """Raises LogPoisoned: a reader at the end would wait for nothing."""
        if self._commits.poison is not None and self._commits.closed is None:
            raise copy.copy(self._commits.poison)

    # --- forgetting ----------------------------------------------------------------------------

    def keep_for(self, party: str) -> None:
        """From now on nothing is removed before `party` has set its floor, too.

        Call it after opening, before any floor is set: the archive's part in the log of a store.
        """
        if self._fileset is not None:
            self._fileset.keep_for(party)

    def set_floor(self, offset: int, party: str = "owner") -> None:
        """Says that offsets below `offset` are safe elsewhere; retention may then remove them.

        Nothing at or above the highest floor that each party has set is removed. It is not stored:
        each sets it again after opening, from wherever the messages went.
        """
        if self._fileset is not None:
            self._fileset.raise_floor(offset, party)
            self._env.pool.submit(self._keep_up)

    def enforce_retention(self) -> int:
        """Removes the files that may go now; returns how many. Runs by itself in the background."""
        return self._fileset.keep_up() if self._fileset is not None else 0

    def roll(self) -> None:
        """Asks for a new file, so that the present one can go once it is safe elsewhere."""
        self._roll_asked = True
        self._commits.sync_soon()

    def on_commit(self, tell: Callable[[int], None] | None) -> None:
        """Calls `tell` with the bytes of each commit that readers may now find.

        It must be quick and must not raise.
        """
        self._on_commit = tell

    def on_disk_full(self, tell: Callable[[int], None] | None) -> None:
        """Calls `tell` with the bytes of each commit that the disk had no room for; as above."""
        self._on_disk_full = tell

    # --- within a turn -------------------------------------------------------------------------

    def _write(self, batch: CommitBatch) -> None:
        try:
            self._write_files(batch)
        except DiskFull:
            if self._on_disk_full is not None:
                self._on_disk_full(batch.size)
            raise

    def _write_files(self, batch: CommitBatch) -> None:
        fileset = self._fileset
        if fileset is None:
            return
        if self._roll_asked or self._file_is_old(fileset):
            self._roll_asked = False
            fileset.rotate()
        if batch.messages:
            fileset.write(batch.messages, batch.size)
        if fileset.sealed is not self._sealed_before:
            self._sealed_before = fileset.sealed
            self._env.pool.submit(self._keep_up)
            self._time_rotation(fileset)
        if unsynced := fileset.unsynced_bytes:
            if batch.must_sync or self._sync_is_due(unsynced):
                fileset.sync()  # the acknowledgement follows: `sync` promises what this has done
            elif self.settings.durability is Durability.INTERVAL:
                self._timers.start("sync", self.settings.sync_interval_s, self._commits.sync_soon)

    def _show(self, batch: CommitBatch) -> None:
        if batch.messages:
            self._cache.add(batch.first_offset, batch.messages, batch.size)
            if self._fileset is not None:
                self._timers.start("cache", self.settings.cache_idle_s, self._drop_idle_cache)
            if self._on_commit is not None:
                self._on_commit(batch.size)

    def _has_unsynced(self) -> bool:
        return self._fileset is not None and self._fileset.unsynced_bytes > 0

    def _sync_is_due(self, unsynced_bytes: int) -> bool:
        durability = self.settings.durability
        if durability is Durability.SYNC:
            return True
        return durability is Durability.INTERVAL and unsynced_bytes >= self.settings.sync_bytes

    def _file_is_old(self, fileset: FileSet) -> bool:
        rotate_s = self.settings.rotate_s
        return rotate_s is not None and fileset.has_messages and fileset.age_s >= rotate_s

    # --- in the background ---------------------------------------------------------------------

    def _keep_up(self) -> None:
        self.enforce_retention()

    def _retain_in_background(self) -> None:
        self.enforce_retention()
        if self.failure is None:
            self._timers.start("retention", _RETENTION_CHECK_S, self._retain_in_background)

    def _time_rotation(self, fileset: FileSet) -> None:
        if self.settings.rotate_s is not None:
            left = self.settings.rotate_s - fileset.age_s
            self._timers.start("rotation", max(left, 1.0), self._rotate_in_background)

    def _rotate_in_background(self) -> None:
        """Asks for a turn with nothing to write, in which an old file is finished."""
        assert self._fileset is not None
        if self._file_is_old(self._fileset):
            self._commits.sync_soon()
        if self.failure is None:
            self._time_rotation(self._fileset)

    def _drop_idle_cache(self) -> None:
        commits = self._commits
        with commits.lock:
            left = commits.committed_at + self.settings.cache_idle_s - self._env.clock.monotonic()
            if left <= 0:
                self._cache.clear()
        if left > 0:
            self._timers.start("cache", left, self._drop_idle_cache)
