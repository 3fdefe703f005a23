"""The durable log of one topic partition: appends, files, cache and readers in one object."""

from __future__ import annotations

import asyncio
import copy
import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.log.cache import Batch, Cache
from penstock.log.fileset import FileSet
from penstock.log.group_commit import GroupCommit
from penstock.log.pool import Pool, shared_pool
from penstock.log.reader import Location, Reader
from penstock.log.recovery import Recovered, recover
from penstock.metrics import LogMetrics, Metrics, names, shared_metrics
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import DiskFull, InvalidArgument, OffsetUnavailable
from penstock.model.settings import Durability, LogSettings
from penstock.storage.files import Files, LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from penstock.log.batch import CommitBatch
    from penstock.log.commit import Commit
    from penstock.log.inventory import LogFile, Lost
    from penstock.storage.files import Lock

_LOG = logging.getLogger(__name__)
_RETENTION_CHECK_S = 60.0


class Log(GroupCommit):
    """An append-only sequence of messages with contiguous offsets, safe to use from any thread.

    Durability: see `Durability`; by default `Append.durable` resolves after fdatasync. Readers see
    a message when its `durable` resolves (with `buffer`: when it was written), in the order of
    offsets. After LogPoisoned nothing more is taken: close the log and open it again.
    """

    def __init__(
        self,
        settings: LogSettings,
        next_offset: int,
        fileset: FileSet | None,
        *,
        name: str,
        clock: Clock,
        pool: Pool,
        metrics: LogMetrics,
        lost: Sequence[Lost] = (),
        folder_lock: Lock | None = None,
    ) -> None:
        """Use `Log.open` or `Log.in_memory`."""
        super().__init__(settings, next_offset, name=name, clock=clock, pool=pool, metrics=metrics)
        self.lost = tuple(lost)
        """What could not be read when the log was opened, losses of earlier repairs included."""
        self._fileset = fileset
        self._folder_lock = folder_lock
        self._cache = Cache(settings.cache_bytes)
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
        files: Files | None = None,
        clock: Clock | None = None,
        pool: Pool | None = None,
        metrics: Metrics | None = None,
        least_offset: int = 0,
    ) -> Log:
        """Opens or creates the log in `folder`, recovering what the last process left.

        LogLocked: another process writes to it. What recovery could not read is in `lost`. No
        offset below `least_offset` is given out, whatever the folder holds.
        """
        folder = Path(folder).absolute()
        files, clock = files or LocalFiles(), clock or SystemClock()
        settings, name = settings or LogSettings(), name or str(folder)
        counters = (metrics or shared_metrics()).for_log(name)
        files.make_folder(folder)
        lock = files.lock(folder / ".lock")
        try:
            found = recover(files, folder, clock)
            log_id = found.log_id or uuid.uuid4()
            next_offset = max(found.next_offset, least_offset)
            fileset = FileSet(
                folder, log_id, found.files, next_offset, settings, files, clock, counters
            )
            log = cls(
                settings,
                next_offset,
                fileset,
                name=name,
                clock=clock,
                pool=pool or shared_pool(),
                metrics=counters,
                lost=found.lost + found.lost_before,
                folder_lock=lock,
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
        clock: Clock | None = None,
        pool: Pool | None = None,
        metrics: Metrics | None = None,
    ) -> Log:
        """A log without files, for tests and pure streaming: keeps the newest `cache_bytes`."""
        return cls(
            settings or LogSettings(),
            0,
            None,
            name=name,
            clock=clock or SystemClock(),
            pool=pool or shared_pool(),
            metrics=(metrics or shared_metrics()).for_log(name),
        )

    def close(self) -> None:
        """Commits what waits, seals the file and lets the next owner in.

        Idempotent. Raises what kept the last messages from the disk; it is closed all the same.
        """
        last = self._refuse_from_now_on()
        if last is None:
            self._over.wait()  # somebody else is closing it
            return
        last.settle()
        self._shut()
        last.wait()

    async def close_async(self) -> None:
        """`close`, awaiting the last commit; the sealing after it is short, but blocks."""
        last = self._refuse_from_now_on()
        if last is None:
            await asyncio.to_thread(self._over.wait)
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
        for lost in found.lost:
            self._metrics.count(names.LOG_LOST_MESSAGES, lost.messages)
        if found.torn_bytes:
            self._metrics.count(names.LOG_TORN_BYTES, found.torn_bytes)
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
        self._end_turns()
        try:
            if self._fileset is not None:
                self._fileset.close(poisoned=self._poison is not None)
        finally:
            if self._folder_lock is not None:
                self._folder_lock.release()
            self._over.set()

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
        files = self._fileset.files if self._fileset is not None else LocalFiles()
        return Reader(self, files, offset, follow=follow)

    @property
    def start_offset(self) -> int:
        """The oldest offset there is; equals `end_offset` in an empty log."""
        if self._fileset is not None:
            return self._fileset.start_offset
        with self._lock:
            first = self._cache.first_offset
            return self._end_offset if first is None else first

    @property
    def end_offset(self) -> int:
        """One past the newest offset that readers may see."""
        return self._end_offset

    @property
    def size(self) -> int:
        """Bytes on disk, without zeros written ahead; in memory without a disk."""
        return self._fileset.size if self._fileset is not None else self._cache.size

    @property
    def disk_bytes(self) -> int:
        """Bytes on disk, and those that wait to be; each once."""
        if self._fileset is None:
            return 0
        with self._lock:
            flying, waiting = self._in_flight, self._queued_bytes
            if flying is not None and self._fileset.next_offset > self._end_offset:
                waiting -= flying.size  # written, but not synced yet
            return self._fileset.size + waiting

    @property
    def sealed_files(self) -> tuple[LogFile, ...]:
        """The finished files, oldest first."""
        return self._fileset.sealed if self._fileset is not None else ()

    # --- what readers ask for (reader.Source) --------------------------------------------------

    def cached(self, offset: int) -> Batch | None:
        """Messages from memory, if it still has them."""
        with self._lock:
            return self._cache.get(offset)

    def locate(self, offset: int) -> Location | None:
        """The file that holds the offset; None where there is none."""
        return self._fileset.locate(offset, self._end_offset) if self._fileset is not None else None

    def next_commit(self, offset: int) -> Commit | None:
        """What to wait for when `offset` is not there yet; None when it is, or never will be."""
        with self._lock:
            if self._end_offset > offset or self.failure is not None:
                return None
            return (self._in_flight or self._pending).commit

    def check_readable(self) -> None:
        """Raises LogPoisoned: a reader at the end would wait for nothing."""
        if self._poison is not None and self._closed is None:
            raise copy.copy(self._poison)

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
            self._pool.submit(self._keep_up)

    def enforce_retention(self) -> int:
        """Removes the files that may go now; returns how many. Runs by itself in the background."""
        return self._fileset.keep_up() if self._fileset is not None else 0

    def roll(self) -> None:
        """Asks for a new file, so that the present one can go once it is safe elsewhere."""
        self._roll_asked = True
        self._ask_for_sync()

    def on_commit(self, tell: Callable[[int], None] | None) -> None:
        """Calls `tell` with the bytes of each commit that readers may now find.

        It must be quick and must not raise.
        """
        self._on_commit = tell

    def on_disk_full(self, tell: Callable[[int], None] | None) -> None:
        """Calls `tell` with the bytes of each commit that the disk had no room for; as above."""
        self._on_disk_full = tell

    # --- within a turn (GroupCommit) -----------------------------------------------------------

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
            self._pool.submit(self._keep_up)
            self._time_rotation(fileset)
        if unsynced := fileset.unsynced_bytes:
            if batch.must_sync or self._sync_is_due(unsynced):
                fileset.sync()
            elif self.settings.durability is Durability.INTERVAL:
                self._timers.start("sync", self.settings.sync_interval_s, self._ask_for_sync)

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
            self._ask_for_sync()
        if self.failure is None:
            self._time_rotation(self._fileset)

    def _drop_idle_cache(self) -> None:
        with self._lock:
            left = self._committed_at + self.settings.cache_idle_s - self._clock.monotonic()
            if left <= 0:
                self._cache.clear()
        if left > 0:
            self._timers.start("cache", left, self._drop_idle_cache)
