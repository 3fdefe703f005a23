"""What a store has on disk: its log, its journal and the folder of its sealed segments.

Opened together and in this order: what `ack.log` proves is compared with the segments that are
there, the log goes on behind them, and a new `ack.log` begins with what was found. Every part of a
store stands on this one value.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.log import Log
from penstock.model.errors import Damaged, DiskFull
from penstock.model.settings import SizePolicy
from penstock.segment import SegmentReader, segment_name
from penstock.store.ack_log import AckLog, Journal
from penstock.store.format import Reason, Registered, Removed
from penstock.store.recovery import Problem, Recovered, recover

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.log import Environment
    from penstock.metrics import StoreMetrics
    from penstock.model.settings import StoreSettings
    from penstock.segment import SegmentInfo, StoredBundle
    from penstock.storage.files import Files, Lock
    from penstock.store.state import StoreState

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
OPEN_READERS: Final = 4
"""Each maps its file; pages that were read count as memory until it is closed."""


class SegmentFolder:
    """The sealed segments: a few open for reading, all of them removable. Safe from any thread."""

    def __init__(self, files: Files, folder: Path) -> None:
        self.files = files
        self.folder = folder
        self._lock = threading.Lock()
        self._open: OrderedDict[int, SegmentReader] = OrderedDict()

    def path(self, segment_seq: int) -> Path:
        return self.folder / segment_name(segment_seq)

    def reader(self, info: SegmentInfo) -> SegmentReader:
        """An open segment. FileNotFoundError; Damaged also where it is not the one meant."""
        segment_seq = info.segment_seq
        with self._lock:
            reader = self._open.get(segment_seq)
            if reader is not None:
                self._open.move_to_end(segment_seq)
                return reader
        reader = SegmentReader.open(self.files, self.path(segment_seq))
        if reader.info != info:  # its bundles must not pass for others
            raise Damaged(f"{reader.name} is another segment than the one that was sealed")
        with self._lock:
            self._open[segment_seq] = reader
            while len(self._open) > OPEN_READERS:
                self._open.popitem(last=False)
        return reader

    def bundle(self, info: SegmentInfo, index: int) -> StoredBundle:
        return self.reader(info).bundle(index)

    def remove(self, segment_seq: int) -> None:
        """Unlinks the file; whoever reads it reads on. Durable after `sync`."""
        self.forget(segment_seq)
        with contextlib.suppress(FileNotFoundError):
            self.files.remove(self.path(segment_seq))

    def keep_aside(self, segment_seq: int) -> None:
        """Gives a damaged file a second name, which nothing reads and nobody removes."""
        path = self.path(segment_seq)
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            self.files.link(path, path.with_name(path.name + ".damaged"))

    def sync(self) -> None:
        self.files.sync_folder(self.folder)

    def forget(self, segment_seq: int | None = None) -> None:
        """Closes a reader, or all of them; bundles that were read stay readable."""
        with self._lock:
            if segment_seq is None:
                self._open.clear()
            else:
                self._open.pop(segment_seq, None)


@dataclass(frozen=True, slots=True)
class Holdings:
    """Of one store. Whoever has it holds the folder's lock."""

    name: str
    folder: Path
    settings: StoreSettings
    env: Environment
    log: Log
    journal: Journal
    segments: SegmentFolder
    metrics: StoreMetrics
    problems: tuple[Problem, ...]
    """What was not as it should be when it was opened."""
    lock: Lock

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: StoreSettings,
        name: str,
        env: Environment,
        *,
        least_offset: int = 0,
        keep_for: Sequence[str] = (),
        registered: Sequence[str] = (),
    ) -> Holdings:
        """See `Store.open`."""
        env.files.make_folder(folder / "segments")
        with contextlib.ExitStack() as undo:
            lock = env.files.lock(folder / ".lock")
            undo.callback(lock.release)
            found = recover(env.files, folder, folder / "segments")
            _make_known(found.state, registered)
            opening = _Opening(folder, settings, name, env, found)
            log = opening.log(least_offset)
            undo.callback(log.close)
            for party in keep_for:
                log.keep_for(party)
            journal = opening.journal(log.end_offset)
            undo.pop_all()
        problems = [Problem(f"log/{lost.file}", str(lost)) for lost in log.lost]
        return cls(
            name,
            folder,
            settings,
            env,
            log,
            journal,
            opening.segments,
            env.metrics.for_store(name),
            (*found.problems, *problems),
            lock,
        )

    def close(self) -> None:
        """The journal first: what it lets go of is in the log until then."""
        self.segments.forget()
        with contextlib.ExitStack() as stack:
            stack.callback(self.lock.release)
            stack.callback(self.log.close)
            stack.callback(self.journal.close)


class _Opening:
    """Opens the log and the journal, on a full disk too: what may go makes room."""

    def __init__(
        self, folder: Path, settings: StoreSettings, name: str, env: Environment, found: Recovered
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._name = name
        self._env = env
        self._found = found
        self.segments = SegmentFolder(env.files, folder / "segments")

    def log(self, least_offset: int) -> Log:
        least = max(self._found.state.sealed_offset, least_offset)
        return self._with_room(
            lambda: Log.open(
                self._folder / "log",
                self._settings.log,
                name=self._name,
                env=self._env,
                least_offset=least,
            )
        )

    def journal(self, log_end: int) -> Journal:
        found = self._found
        found.never_repeat(log_end)
        name, durability = f"{self._name}/ack.log", self._settings.log.durability
        acks = AckLog(self._folder, found.next_event, durability, self._env, name=name)
        journal = Journal(found.state, acks, self._settings.ack_log_bytes)
        try:
            # A new ack.log with the recovered state. Invariant: those of `registered` are durable
            # in it before anything is delivered, or removed for being delivered.
            self._with_room(lambda: journal.compact().wait())
        except BaseException:
            acks.close()
            raise
        return journal

    def _with_room(self, act: Callable[[], _T]) -> _T:
        """What `act` gives; while the disk is full for it, what may go goes."""
        for info, reason in self._expendable():
            try:
                return act()
            except DiskFull:
                # Should it crash before that is noted, who lacks the segment has it as lost.
                self._found.state.apply(Removed(reason, info.segment_seq, info.end_offset))
                self.segments.remove(info.segment_seq)
                text = "%s: on a full disk it drops segment %d"
                _LOG.warning(text, self._name, info.segment_seq)
        return act()

    def _expendable(self) -> list[tuple[SegmentInfo, Reason]]:
        """What may go for want of room, in this order: what everybody has, then by policy."""
        state = self._found.state
        segments = list(state.segments.values())
        complete = [(info, Reason.ACKED) for info in segments if state.is_complete(info)]
        if self._settings.size_policy is not SizePolicy.DROP_OLDEST:
            return complete
        return complete + [(i, Reason.SIZE) for i in segments if not state.is_complete(i)]


def _make_known(state: StoreState, names: Sequence[str]) -> None:
    """Registers who is not yet, from the oldest segment that is there."""
    for name in names:
        if state.named(name) is None:
            start = next(iter(state.segments), state.next_seq)
            state.apply(Registered(state.next_subscriber, start, name))
