"""Keeps the disk's use within bounds: removes what may go, and says when appends must wait.

One function, `plan_removals`, holds the precedence of the rules:

1. A segment that every subscriber has goes, but for the newest `headroom_bytes` of such.
2. A segment older than `max_age_s` goes, delivered or not: its missing bundles count as dropped.
3. Over the disk limit the headroom goes too, oldest first.
4. Still over it, `drop_oldest` takes the oldest segment, delivered or not; `backpressure` makes
   appends wait instead.

Rules 1 and 2 never wait for pressure, and no rule takes a younger segment while the same rule could
take an older one. Where two rules would take a segment, the first one is its reason: what everybody
has is never counted as dropped.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.log.commit import Commit
from penstock.log.fileset import MAX_ZEROED_BYTES
from penstock.log.format import HEADER_BYTES
from penstock.log.pool import Job, Timers
from penstock.metrics import names
from penstock.model.errors import (
    DiskFull,
    LogLocked,
    LogUnavailable,
    MessageTooLarge,
    StoreFull,
    TooManyFiles,
)
from penstock.model.settings import SizePolicy, StoreSettings
from penstock.store.ack_log import RESERVE_BYTES
from penstock.store.format import Answered, Outcome, Reason, Removed
from penstock.store.state import runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.segment import SegmentInfo
    from penstock.store.budget import Budget
    from penstock.store.filling import Filling
    from penstock.store.format import Event
    from penstock.store.holdings import Holdings
    from penstock.store.state import StoreState

_LOG = logging.getLogger(__name__)
TICK_S: Final = 1.0
LOOK_S: Final = 0.02
"""How often the disk is asked for its free space, at most."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now."""

    removals: list[tuple[SegmentInfo, Reason]]
    over_limit: bool
    """Still over the disk limit when that is done."""


def plan_removals(
    state: StoreState, settings: StoreSettings, now_ns: int, used_bytes: int, limit_bytes: float
) -> Plan:
    """Applies the rules; `used_bytes` counts log and segments together."""
    complete = [info for info in state.segments.values() if state.is_complete(info)]
    spare = sum(info.size for info in complete) - settings.headroom_bytes
    chosen: dict[int, tuple[SegmentInfo, Reason]] = {}
    used = used_bytes

    def choose(info: SegmentInfo, reason: Reason) -> None:
        nonlocal used
        chosen[info.segment_seq] = info, reason
        used -= info.size

    for info in complete:  # 1
        if info.size <= spare:
            choose(info, Reason.ACKED)
            spare -= info.size
        else:
            break
    if settings.max_age_s is not None:  # 2
        horizon = now_ns - int(settings.max_age_s * 1e9)
        for info in state.segments.values():
            if info.segment_seq not in chosen and info.last_ingested_at_ns < horizon:
                choose(info, Reason.AGE)
    over_limit = list(complete)  # 3
    if settings.size_policy is SizePolicy.DROP_OLDEST:  # 4
        over_limit += state.segments.values()
    for info in over_limit:
        if used > limit_bytes and info.segment_seq not in chosen:
            choose(info, Reason.SIZE)
    removals = [chosen[seq] for seq in sorted(chosen)]
    return Plan(removals, used > limit_bytes)


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
        held: Holdings,
        budget: Budget | None,
        filling: Filling,
        damaged: set[int],
        make_room: Callable[[int], None],
    ) -> None:
        """`damaged`: segments to keep aside. `make_room` hears how much the disk lacks."""
        self._log = held.log
        self._journal = held.journal
        self._segments = held.segments
        self._budget = budget
        self._whole = budget is not None and budget.whole_folder
        self._settings = held.settings
        self._clock = held.env.clock
        self._metrics = held.metrics
        self._filling = filling
        self._damaged = damaged
        self._make_room = make_room
        self._looked_at = -math.inf
        self._disk_is_short = False
        self._limit = math.inf if budget is None else 0.0
        self._is_granted = budget is None  # else nothing is taken, and nothing goes either
        self._log_limit = held.settings.max_log_bytes or math.inf
        self._doomed: dict[int, _Doomed] = {}
        self._freed = Commit()
        self._lacking = 0  # bytes that an append waits for
        self._to_free = 0  # bytes that the disk lacks
        self._enough = True  # whether there was room for them at the last look
        self._stopped = False
        self._admission = threading.Lock()
        self._job = Job(held.env.upkeep, self._run)
        self._timers = Timers(held.env.upkeep)

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
        return (
            self._zeros + self._journal.size + max(self._filling.open.nbytes, self._log.disk_bytes)
        )

    @property
    def _zeros(self) -> int:
        """Written ahead in both logs, at most."""
        return min(self._settings.log.rotate_bytes, MAX_ZEROED_BYTES) + RESERVE_BYTES

    def _cost(self, size: int) -> int:
        """Of a message: in the log, and where the whole folder counts in a segment too."""
        return 2 * size if self._whole else size

    @property
    def limit_bytes(self) -> float:
        return self._limit

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes are within the limits, as far as is known without asking."""
        in_log = self._log.disk_bytes + size <= self._log_limit and self._disk_has_room(size)
        return in_log and self.used_bytes + self._charge + self._cost(size) <= self._limit

    def _disk_has_room(self, size: int) -> bool:
        """Whether the disk itself could take the log's next segments, at the last look.

        A log that has the whole disk can never become segments, nor can it go.
        """
        if self._filling.waits_for_space:
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
        if self._filling.waits_for_space or self._disk_is_short:
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
        # Every answer for it, and its removal, are durable: a restart finds nobody who waits for
        # what goes here, or finds it noted as dropped.
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
            self._filling.seal_soon()

    def _fits(self, lacking: int) -> bool:
        """Once everything that is doomed is gone."""
        in_log = self._log.disk_bytes + lacking <= self._log_limit and not self._disk_is_short
        return in_log and self._needed_bytes + self._charge + self._cost(lacking) <= self._limit

    def _wake(self) -> None:
        freed, self._freed = self._freed, Commit()
        freed.resolve()
