"""Changes a store that nobody has open: repairs it, or hands its journal to a command."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.log import Environment
from penstock.log.survey import survey_log
from penstock.log.verify import repair_log
from penstock.metrics import Metrics
from penstock.model.errors import Damaged
from penstock.model.settings import MIB, Durability
from penstock.segment import SegmentReader, segment_name
from penstock.store.ack_log import LOG_NAME, AckLog, Journal
from penstock.store.format import Answered, Outcome, Reason, Removed
from penstock.store.recovery import Recovered, recover
from penstock.store.state import StoreState, all_of, runs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.model.clock import Clock
    from penstock.segment import SegmentInfo
    from penstock.storage.files import Files
    from penstock.store.format import Event


@contextlib.contextmanager
def closed_journal(files: Files, folder: Path, clock: Clock) -> Iterator[tuple[Journal, Recovered]]:
    """The journal of a store that nobody has open, for changes that need no bundle.

    LogLocked while a process has the store open. What opening the store would put in order, is.
    """
    files.make_folder(folder / "segments")
    lock = files.lock(folder / ".lock")
    try:
        found = recover(files, folder, folder / "segments")
        if not found.certain:
            found.never_repeat(_log_end(files, folder / "log", clock))
        env = Environment(files=files, clock=clock, metrics=Metrics())
        name = str(folder / LOG_NAME)
        acks = AckLog(folder, found.next_event, Durability.SYNC, env, name=name)
        journal = Journal(found.state, acks, compact_bytes=MIB)
        with contextlib.closing(journal):
            journal.compact().wait()
            yield journal, found
    finally:
        lock.release()


def _log_end(files: Files, folder: Path, clock: Clock) -> int:
    if not files.names(folder):
        return 0
    repair_log(files, folder, clock)
    return survey_log(files, folder).end_offset


def repair_store(files: Files, folder: Path, clock: Clock) -> None:
    """Rewrites `ack.log` and `ack.ckpt` from what is provable, and records what is lost.

    A segment keeps its place as long as one bundle in it is readable: only what cannot be read is
    noted as lost, for every subscriber that lacks it. One of which nothing is readable becomes
    `….seg.damaged`. LogLocked while a process has the store open. Interruptible: a second run
    finishes the first.
    """
    with closed_journal(files, folder, clock) as (journal, _):
        for info in list(journal.state.segments.values()):
            lost = _unreadable(files, folder, info)
            if lost is None:
                _set_aside(files, folder / "segments", info)
            events = _losses(journal.state, info, all_of(info) if lost is None else lost, clock)
            if lost is None:
                events.append(Removed(Reason.LOST, info.segment_seq, info.end_offset))
            if events:
                journal.record(*events).wait()  # durable before the next: a second run goes on here


def _unreadable(files: Files, folder: Path, info: SegmentInfo) -> int | None:
    """The bundles that cannot be read, as bits; None: nothing of the segment can."""
    try:
        path = folder / "segments" / segment_name(info.segment_seq)
        reader = SegmentReader.open(files, path)
    except Damaged:
        return None
    if reader.info != info:
        return None
    gone = {index for damage in reader.verify() for index in damage.bundles}
    return sum(1 << index for index in gone)


def _set_aside(files: Files, folder: Path, info: SegmentInfo) -> None:
    # First the file, then the event: what is gone without one is found to be lost, too.
    path = folder / segment_name(info.segment_seq)
    files.rename(path, path.with_name(f"{path.name}.damaged"))
    files.sync_folder(folder)


def _losses(state: StoreState, info: SegmentInfo, lost: int, clock: Clock) -> list[Event]:
    now_ns = clock.wall_ns()
    return [
        Answered(Outcome.LOST, subscriber.number, info.segment_seq, first, count, now_ns)
        for subscriber, missing in state.outstanding(info)
        for first, count in runs(missing & lost)
    ]
