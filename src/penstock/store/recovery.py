"""Opening a store: what the acknowledgement log proves, compared with the segments that are there.

The newest snapshot that is readable, from `ack.log` or `ack.ckpt`, and every readable event after
it make the state. Damage in between costs the answers in it, which are asked for again; it never
makes an answer out of nothing. Then the folder is looked at: a segment that no event names is
taken in, one whose removal was recorded is removed, one that is missing is reported as lost.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.log import format as log_format
from penstock.log.scan import End, Gap, Run, read_header, scan_frames
from penstock.model.errors import Damaged, FormatError
from penstock.segment import SegmentReader, segment_name, segment_seq_of
from penstock.storage.documents import decode_document
from penstock.storage.files import read_whole
from penstock.store.ack_log import (
    CHECKPOINT_KIND,
    CHECKPOINT_NAME,
    CHECKPOINT_VERSION,
    LOG_NAME,
)
from penstock.store.format import Outcome, Reason, Removed, Sealed, Snapshot, decode_event
from penstock.store.state import StoreState

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.segment import SegmentInfo
    from penstock.storage.files import Files
    from penstock.store.format import Event

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was not as it should be when the store was opened."""

    file: str
    reason: str
    messages: int = 0
    """Messages that are lost with it, as far as is known."""

    def __str__(self) -> str:
        lost = f" ({self.messages} messages)" if self.messages else ""
        return f"{self.file}: {self.reason}{lost}"


@dataclass(slots=True)
class Recovered:
    """What opening found."""

    state: StoreState = field(default_factory=StoreState)
    next_event: int = 0
    """No event has this number or a higher one."""
    problems: list[Problem] = field(default_factory=list)
    torn_bytes: int = 0
    certain: bool = False
    """Whether the acknowledgement log was whole: no segment can have been forgotten."""

    def never_repeat(self, log_end: int) -> None:
        """Raises the next segment_seq over all that may have been forgotten."""
        if not self.certain:
            # Each segment took at least one message: no segment ever had a higher number.
            self.state.next_seq = max(self.state.next_seq, log_end)


def recover(files: Files, folder: Path, segments: Path) -> Recovered:
    """Rebuilds the state and puts the folder in order. Writes nothing else."""
    return _Recovery(files, folder, segments).run()


def replay(files: Files, folder: Path) -> Recovered:
    """The state that the acknowledgement log proves; looks at no segment and changes nothing."""
    recovery = _Recovery(files, folder, folder)
    recovery.replay()
    return recovery.found


class _Recovery:
    def __init__(self, files: Files, folder: Path, segments: Path) -> None:
        self._files = files
        self._folder = folder
        self._segments = segments
        self.found = Recovered()
        self._removed: set[int] = set()
        self._known_before = 0  # segments below it that the snapshot does not list were removed
        self._damaged = False
        self._is_known = False  # which store it is

    def run(self) -> Recovered:
        self.replay()
        if self._damaged:
            self._keep_aside()
        self._reconcile()
        self.found.state.advance()
        return self.found

    # --- the acknowledgement log ---------------------------------------------------------------

    def replay(self) -> None:
        start = self._load_checkpoint()
        try:
            file = self._files.open(self._folder / LOG_NAME)
        except FileNotFoundError:
            if start is not None or self._files.names(self._segments):
                self._report(LOG_NAME, "the file is missing; answers since the checkpoint are lost")
            return
        try:
            header, _ = read_header(file)
            walk = scan_frames(
                file, header.seed, log_format.HEADER_BYTES, header.first_offset, None
            )
            # Its first event is a snapshot: a checkpoint that is older was merely not replaced.
            self._walk(walk, start)
        except Damaged as error:  # not UnsupportedVersion: a newer store is left as it is
            self._report(LOG_NAME, str(error))
        finally:
            file.close()
        self.found.certain = all(problem.file != LOG_NAME for problem in self.found.problems)

    def _load_checkpoint(self) -> int | None:
        """Where its events end; None without a checkpoint that can be relied on."""
        try:
            data = read_whole(self._files, self._folder / CHECKPOINT_NAME)
            document = decode_document(CHECKPOINT_KIND, CHECKPOINT_VERSION, data)
            self._begin_with(document)
            self.found.next_event = int(document["next_event"])
        except FileNotFoundError:
            return None
        except (FormatError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._report(CHECKPOINT_NAME, f"unreadable: {error}")
            return None
        return self.found.next_event

    def _begin_with(self, document: dict[str, Any]) -> None:
        self.found.state.load(document)
        self._is_known = True
        self._known_before = self.found.state.next_seq
        self._removed.clear()

    def _walk(self, walk: Any, start: int | None) -> None:
        """Applies what is readable from event `start` on."""
        for item in walk:
            if isinstance(item, Run):
                for number, message in enumerate(item.messages, item.first_offset):
                    if start is None or number >= start:
                        self._apply(number, message)
            elif isinstance(item, Gap):
                if start is None or item.end_offset > start:
                    count = item.end_offset - item.first_offset
                    self._report(LOG_NAME, f"{count} events at byte {item.position} are damaged")
            elif isinstance(item, End):
                self.found.torn_bytes = item.torn_bytes
                self.found.next_event = max(self.found.next_event, item.offset)

    def _apply(self, number: int, message: bytes) -> None:
        try:
            event = decode_event(message)
            if isinstance(event, Snapshot):
                self._begin_with(event.state)
            else:
                self.found.state.apply(event)
        except (FormatError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._report(LOG_NAME, f"event {number} cannot be understood: {error}")
            return
        if isinstance(event, Removed):
            self._removed.add(event.segment_seq)
        self.found.next_event = max(self.found.next_event, number + 1)

    def _report(self, file: str, reason: str, messages: int = 0) -> None:
        self._damaged = True
        problem = Problem(file, reason, messages)
        self.found.problems.append(problem)
        _LOG.error("%s: %s", self._folder, problem)

    def _keep_aside(self) -> None:
        """A second name for what is damaged, before a new file takes the first."""
        for name in (LOG_NAME, CHECKPOINT_NAME):
            if any(problem.file == name for problem in self.found.problems):
                path = self._folder / name
                aside = path.with_name(f"{name}.damaged")
                with contextlib.suppress(FileNotFoundError):
                    if aside.name in self._files.names(self._folder):
                        self._files.remove(aside)
                    self._files.link(path, aside)

    # --- the folder ----------------------------------------------------------------------------

    def _reconcile(self) -> None:
        state = self.found.state
        names = self._files.names(self._segments)
        present = {seq for name in names if (seq := segment_seq_of(name)) is not None}
        for name in names:
            if name.endswith(".tmp"):  # from before a rename: its messages are in the log
                self._files.remove(self._segments / name)
        for seq in sorted(present - state.segments.keys()):
            if self._was_removed(seq):
                # Its removal was durable before the file was touched: nobody waits for it.
                self._files.remove(self._segments / segment_name(seq))
            else:
                self._adopt(seq)
        for seq in sorted(state.segments.keys() - present):
            self._give_up(state.segments[seq])
        self._files.sync_folder(self._segments)

    def _was_removed(self, seq: int) -> bool:
        # With damage an event may be missing: a segment too many is delivered again, no more.
        return seq in self._removed or (seq < self._known_before and not self._damaged)

    def _adopt(self, seq: int) -> None:
        """Takes in a segment that was sealed just before the end."""
        name = segment_name(seq)
        try:
            reader = SegmentReader.open(self._files, self._segments / name)
            if reader.info.segment_seq != seq:
                raise Damaged(f"it says that it is segment {reader.info.segment_seq}")
            if self._is_known and reader.store_id != self.found.state.store_id:
                raise Damaged("it belongs to another store")
        except Damaged as error:
            self._report(name, f"unreadable, and kept as {name}.damaged: {error}")
            # Before its number could be given out again: the next segment must not replace it.
            self._files.rename(self._segments / name, self._segments / f"{name}.damaged")
            self.found.state.next_seq = max(self.found.state.next_seq, seq + 1)
            return
        self._is_known, self.found.state.store_id = True, reader.store_id
        self._note(Sealed(reader.info))

    def _give_up(self, info: SegmentInfo) -> None:
        """A segment whose file is gone, which is no loss if everybody had it."""
        if self.found.state.is_complete(info):
            self._note(Removed(Reason.ACKED, info.segment_seq, info.end_offset))
            return
        messages = info.end_offset - info.first_offset
        self._report(segment_name(info.segment_seq), "the file is missing", messages)
        for subscriber, missing in list(self.found.state.outstanding(info)):
            subscriber.settle(info.segment_seq, missing, Outcome.LOST)
        self._note(Removed(Reason.LOST, info.segment_seq, info.end_offset))

    def _note(self, event: Event) -> None:
        self.found.state.apply(event)
