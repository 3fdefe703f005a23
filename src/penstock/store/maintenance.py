"""Keeps the disk's use within bounds: removes what may go, and says when appends must wait."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.log.commit import Commit
from penstock.log.format import HEADER_BYTES
from penstock.log.pool import Timers
from penstock.log.writer import MAX_ZEROED_BYTES
from penstock.metrics import names
from penstock.model.errors import (
    DiskFull,
    LogLocked,
    LogUnavailable,
    MessageTooLarge,
    StoreFull,
    TooManyFiles,
)
from penstock.store.ack_log import RESERVE_BYTES
from penstock.store.format import Answered, Outcome, Reason, Removed
from penstock.store.jobs import Job
from penstock.store.retention import plan_removals
from penstock.store.state import runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log import Log
    from penstock.log.pool import Pool
    from penstock.metrics import StoreMetrics
    from penstock.model.clock import Clock
    from penstock.model.settings import StoreSettings
    from penstock.segment import SegmentInfo
    from penstock.store.budget import Budget
    from penstock.store.format import Event
    from penstock.store.journal import Journal
    from penstock.store.segments import SegmentFolder

_LOG = logging.getLogger(__name__)
TICK_S: Final = 1.0
LOOK_S: Final = 0.02
"""How often the disk is asked for its free space, at most."""


@dataclass(frozen=True, slots=True)
class _Doomed:
    """A segment that is gone from the state; its file goes when that is durable."""

    size: int
    events: list[Event]
    recorded: Commit


class Maintenance:
    """Removals and the disk limit of one store."""

    def __init__(
        self,
        log: Log,
        journal: Journal,
        segments: SegmentFolder,
        budget: Budget | None,
        *,
        settings: StoreSettings,
        clock: Clock,
        pool: Pool,
        metrics: StoreMetrics,
        damaged: set[int],
        seal_soon: Callable[[], None],
        open_bytes: Callable[[], int],
        seal_waits: Callable[[], bool],
        make_room: Callable[[int], None],
    ) -> None:
        self._log = log
        self._journal = journal
        self._segments = segments
        self._budget = budget
        self._whole = budget is not None and budget.whole_folder
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._damaged = damaged
        self._seal_soon = seal_soon
        self._open_bytes = open_bytes
        self._seal_waits = seal_waits
        self._make_room = make_room
        self._looked_at = -math.inf
        self._disk_is_short = False
        self._limit = math.inf if budget is None else 0.0
        self._is_granted = budget is None  # else nothing is taken, and nothing goes either
        self._log_limit = math.inf if settings.max_log_bytes is None else settings.max_log_bytes
        self._doomed: dict[int, _Doomed] = {}
        self._freed = Commit()
        self._lacking = 0  # bytes that an append waits for
        self._to_free = 0  # bytes that the disk lacks
        self._enough = True  # whether there was room for them at the last look
        self._stopped = False
        self._admission = threading.Lock()
        self._job = Job(pool, self._run)
        self._timers = Timers(pool)

    def start(self) -> None:
        """Looks now, and then every second while there is something to keep."""
        self._ask_budget(0)
        self._job.ask()

    def ask(self) -> None:
        """Something may have become removable."""
        self._job.ask()

    def free(self, size: int) -> None:
        """The disk itself has no room: so many bytes of what may go are to go, in the background.

        What may go is what the policy says, as at the limit. Quick, and safe within a turn.
        """
        self._to_free = max(self._to_free, size)
        self._job.ask()

    def sealed(self) -> None:
        """A segment has come: over the limit its part of the log goes before the next is sealed."""
        if not self.has_room(0):
            try:
                self._log.enforce_retention()
            except OSError as error:
                _LOG.warning("the log's files are removed later: %s", error)
        self._job.ask()

    def give_up(self) -> None:
        """There will be no room any more; who waits for it hears of that."""
        self._stopped = True
        self._wake()

    def stop(self) -> None:
        """Ends the job; who waits for room hears of it."""
        self.give_up()
        self._job.stop()
        if self._budget is not None:
            self._ask_budget(0)
            try:
                self._budget.close()
            except (OSError, LogLocked) as error:
                _LOG.warning("the shared budget could not be told of the end: %s", error)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing waits to be removed."""
        return not self._doomed

    # --- admission -----------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        """Log, segments and what waits to be written."""
        return self._needed_bytes + sum(doomed.size for doomed in list(self._doomed.values()))

    @property
    def _needed_bytes(self) -> int:
        return self._log.disk_bytes + self._journal.state.segment_bytes

    @property
    def _charge(self) -> int:
        """What the folder takes, or will take, beside log and segments.

        The acknowledgement log, the zeros ahead of both logs, and the segment that the log will
        become: it is written before the log can go.
        """
        if not self._whole:
            return 0
        return self._zeros + self._journal.size + max(self._open_bytes(), self._log.disk_bytes)

    @property
    def _zeros(self) -> int:
        """Written ahead in both logs, at most."""
        return min(self._settings.log.rotate_bytes, MAX_ZEROED_BYTES) + RESERVE_BYTES

    def _cost(self, size: int) -> int:
        """Of a message: in the log, and where the whole folder counts in a segment too."""
        return 2 * size if self._whole else size

    @property
    def limit_bytes(self) -> float:
        """What it may use at present."""
        return self._limit

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes are within the limits, as far as is known without asking."""
        in_log = self._log.disk_bytes + size <= self._log_limit and self._disk_has_room(size)
        return in_log and self.used_bytes + self._charge + self._cost(size) <= self._limit

    def _disk_has_room(self, size: int) -> bool:
        """Whether the disk itself could take the log's next segments, at the last look.

        A log that has the whole disk can never become segments, nor can it go.
        """
        if self._seal_waits():
            return False
        now = self._clock.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            next_ones = min(self._log.disk_bytes + size, 2 * self._settings.segment.target_bytes)
            lacking = next_ones + self._zeros + size - self._free_bytes()
            self._disk_is_short = lacking > 0
            if lacking > 0:
                self._make_room(int(lacking))
        return not self._disk_is_short

    def _free_bytes(self) -> float:
        try:
            found = os.statvfs(self._segments.folder)
        except OSError:  # no disk of this machine
            return math.inf
        return found.f_bavail * found.f_frsize

    @property
    def shortage(self) -> str | None:
        """Why appends wait, where nothing that may go would make room for them."""
        return self._why_no_room(self._lacking) if self._lacking and not self._enough else None

    def wait_for_room(self, size: int, timeout: float | None) -> None:
        """Returns when there is room, or the store is over; StoreFull after the timeout.

        MessageTooLarge: there never can be.
        """
        most = math.inf if self._budget is None else self._budget.most_bytes
        most = min(most, self._log_limit)
        # An empty log has a header all the same.
        if self._cost(size + HEADER_BYTES) + (self._zeros if self._whole else 0) > most:
            raise MessageTooLarge(f"{size} bytes; all that the store may ever use is {most:.0f}")
        until = math.inf if timeout is None else self._clock.monotonic() + timeout
        while not self._stopped:
            freed = self._freed
            if self._claim(size):
                return
            left = until - self._clock.monotonic()
            if left <= 0:
                raise StoreFull(self._why_no_room(size), retry_after_s=TICK_S)
            freed.settle(min(left, TICK_S))

    def _why_no_room(self, size: int) -> str:
        if self._seal_waits() or self._disk_is_short:
            return "the disk is full"
        if self._log.disk_bytes + size > self._log_limit:
            return f"{self._log.disk_bytes} bytes of the log wait to be sealed"
        return f"{self.used_bytes + self._charge} bytes are used of {self._limit:.0f}"

    def next_chance(self) -> Commit:
        """What to await before trying again."""
        return self._freed

    def _claim(self, size: int) -> bool:
        """Tries to get room: from the budget, by an early seal, by removals."""
        with self._admission:
            if self.has_room(size):
                return True
            self._ask_budget(size)
        if self.has_room(size):
            return True
        self._metrics.count(names.STORE_THROTTLED)
        self._lacking = max(self._lacking, size)
        self._job.ask()
        return False

    def _ask_budget(self, size: int) -> None:
        if self._budget is None:
            return
        used = self.used_bytes + self._charge
        # Where stores come and go, who wants nothing keeps nothing from others.
        ahead = 0 if self._whole else self._settings.segment.target_bytes
        try:
            self._limit = self._budget.limit(used, used + self._cost(size) + ahead)
            self._is_granted = True
        except (OSError, LogLocked) as error:  # it goes on with what it was granted before
            _LOG.warning("the shared budget could not be asked: %s", error)

    # --- the job -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._tidy()
        except (DiskFull, TooManyFiles) as error:
            _LOG.warning("removals wait: %s", error)
        except LogUnavailable as error:
            _LOG.error("nothing is removed any more: %s", error)
            return
        except OSError as error:
            _LOG.warning("removals are tried again: %s", error)
        waits = self._budget is not None or self._lacking > 0
        if waits or self._settings.max_age_s is not None or self._doomed:
            self._timers.start("tick", TICK_S, self._job.ask)

    def _tidy(self) -> None:
        lacking, before = self._lacking, self.used_bytes
        to_free, self._to_free = self._to_free, 0
        self._ask_budget(lacking)
        if to_free or not self._fits(lacking):
            self._make_room_in_log(lacking)
        with self._journal.lock:
            used = self._needed_bytes + self._charge + self._cost(lacking)
            limit = self._limit if self._is_granted else math.inf
            plan = plan_removals(
                self._journal.state,
                self._settings,
                self._clock.wall_ns(),
                used,
                min(limit, used - to_free) if to_free else limit,
            )
            for info, reason in plan.removals:
                self._doom(info, reason)
        if self._doomed:
            self._remove_doomed()
        if plan.over_limit:
            self._metrics.count(names.STORE_SIZE_EMERGENCIES)
        enough = self._enough = self.has_room(lacking)
        if enough:
            self._lacking = 0
        if enough or self.used_bytes < before:  # else who waits would only ask again, and again
            self._wake()

    def _doom(self, info: SegmentInfo, reason: Reason) -> None:
        """Notes the removal, and before it what becomes of bundles that somebody lacks."""
        now_ns = self._clock.wall_ns()
        events: list[Event] = []
        for subscriber, missing in self._journal.state.outstanding(info):
            for first, count in runs(missing):
                where = (info.segment_seq, first, count)
                events.append(Answered(Outcome.DROPPED, subscriber.number, *where, now_ns))
        unread = bool(events) or not self._journal.state.subscribers
        events.append(Removed(reason, info.segment_seq, info.end_offset))
        self._doomed[info.segment_seq] = _Doomed(info.size, events, self._journal.record(*events))
        self._metrics.count(names.STORE_EVICTIONS, 1, (reason.name.lower(),))
        if unread:
            self._metrics.count(names.STORE_DROPPED_SEGMENTS)
        if unread and reason is Reason.SIZE:
            what = (
                f"segment {info.segment_seq}, offsets {info.first_offset} to {info.end_offset - 1}"
            )
            _LOG.warning("%s: for want of room it drops %s", self._log.name, what)

    def _remove_doomed(self) -> None:
        """Removes the files whose removal is durable."""
        for segment_seq, doomed in self._doomed.items():
            try:
                doomed.recorded.wait()
            except (DiskFull, TooManyFiles):
                recorded = self._journal.record(*doomed.events)
                self._doomed[segment_seq] = replace(doomed, recorded=recorded)
                raise
        self._journal.flush()
        for segment_seq in list(self._doomed):
            if segment_seq in self._damaged:
                self._segments.keep_aside(segment_seq)
            self._segments.remove(segment_seq)
            del self._doomed[segment_seq]
        self._segments.sync()

    def _make_room_in_log(self, lacking: int) -> None:
        """What is in segments already need not be in the log, nor in its last file."""
        self._log.roll()
        with contextlib.suppress(DiskFull, TooManyFiles):  # then removals have to make room
            self._log.flush()
            self._log.enforce_retention()
        if not self._fits(lacking):
            self._seal_soon()

    def _fits(self, lacking: int) -> bool:
        """Once everything that is doomed is gone."""
        in_log = self._log.disk_bytes + lacking <= self._log_limit and not self._disk_is_short
        return in_log and self._needed_bytes + self._charge + self._cost(lacking) <= self._limit

    def _wake(self) -> None:
        freed, self._freed = self._freed, Commit()
        freed.resolve()
