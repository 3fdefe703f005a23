"""Reads every byte of a log and says what is wrong with it; repairs it where told to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.log import checkpoint as ckpt
from penstock.log import format as fmt
from penstock.log.inventory import file_name, first_offset_of
from penstock.log.recovery import recover
from penstock.log.scan import End, Gap, Run, read_header, read_seal, scan_frames
from penstock.model.errors import Damaged
from penstock.storage.files import read_whole, write_atomically

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable
    from pathlib import Path

    from penstock.model.clock import Clock
    from penstock.storage.files import File, Files


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is not as it was written."""

    file: str
    position: int
    kind: str
    detail: str
    first_offset: int | None = None
    messages_lost: int = 0


@dataclass(slots=True)
class LogReport:
    """What verifying a log found."""

    folder: str
    files_checked: int = 0
    bytes_checked: int = 0
    messages: int = 0
    start_offset: int | None = None
    end_offset: int | None = None
    damage: list[Damage] = field(default_factory=list)
    known_losses: list[tuple[int, int]] = field(default_factory=list)
    """Offset ranges [first, end) that an earlier repair gave up; they are damage no more."""
    notes: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether every message is there that should be."""
        return not self.damage


def verify_log(
    files: Files, folder: Path, on_progress: Callable[[int], object] = lambda _: None
) -> LogReport:
    """Verifies each file, their continuity and the checkpoint. Safe beside a running writer.

    `on_progress` hears how many bytes each file had.
    """
    check = _Verification(files, LogReport(str(folder)))
    names = files.names(folder)
    check.checkpoint(folder, names)
    firsts = [first for name in names if (first := first_offset_of(name)) is not None]
    for at, first in enumerate(firsts):
        before = check.report.bytes_checked
        check.file(folder / file_name(first), is_last=at == len(firsts) - 1)
        on_progress(check.report.bytes_checked - before)
    check.ends_where_the_checkpoint_says()
    check.leftovers(names)
    return check.report


def verify_file(files: Files, path: Path) -> LogReport:
    """Verifies one log file by itself."""
    check = _Verification(files, LogReport(str(path.parent)))
    check.file(path, is_last=True)
    return check.report


def repair_log(files: Files, folder: Path, clock: Clock) -> None:
    """Rebuilds damaged files from what is readable, keeping the originals as `….damaged`.

    LogLocked while a process writes to the log. Interruptible: a second run finishes the first.
    """
    lock = files.lock(folder / ".lock")
    try:
        found = recover(files, folder, clock, verify=True)
        if found.log_id is not None:
            now = clock.wall_ns()
            data = ckpt.encode_checkpoint(found.log_id, found.next_offset, found.files, now)
            write_atomically(files, folder / ckpt.NAME, data)
    finally:
        lock.release()


class _Verification:
    def __init__(self, files: Files, report: LogReport) -> None:
        self.report = report
        self._files = files
        self._log_id: uuid.UUID | None = None
        self._next: int | None = None
        self._promised_end: int | None = None

    def checkpoint(self, folder: Path, names: list[str]) -> None:
        if ckpt.NAME not in names:
            if any(first_offset_of(name) is not None for name in names):
                self.report.notes.append("there is no checkpoint; opening the log writes one")
            return
        self.report.files_checked += 1
        try:
            found = ckpt.decode_checkpoint(read_whole(self._files, folder / ckpt.NAME), folder)
        except Damaged as error:
            self._add(ckpt.NAME, 0, "checkpoint", f"{error}; opening the log writes a new one")
            return
        self._log_id = found.log_id
        self._promised_end = found.next_offset

    def file(self, path: Path, *, is_last: bool) -> None:
        self.report.files_checked += 1
        try:
            file = self._files.open(path)
        except FileNotFoundError:  # retention was faster
            return
        try:
            self.report.bytes_checked += file.size()
            self._file(path.name, file, is_last=is_last)
        finally:
            file.close()

    def ends_where_the_checkpoint_says(self) -> None:
        end, promised = self.report.end_offset, self._promised_end
        if promised is not None and (end or 0) < promised:
            self._missing(end or 0, promised)
            self.report.end_offset = promised

    def leftovers(self, names: list[str]) -> None:
        for name in names:
            if ".wal.damaged" in name:
                self.report.notes.append(f"{name} was set aside by an earlier repair")
            elif name.endswith(".tmp"):
                self.report.notes.append(f"{name} is left from an interrupted write; harmless")

    def _file(self, name: str, file: File, *, is_last: bool) -> None:
        first = first_offset_of(name) or 0
        if self._next is not None and self._next < first:
            self._missing(self._next, first)
        if self.report.start_offset is None:
            self.report.start_offset = first
        try:
            header, bad_copies = read_header(file)
        except Damaged as error:
            self._unreadable(name, first, str(error))
            return
        if header.first_offset != first:
            self._unreadable(name, first, f"it says that it begins at {header.first_offset}")
            return
        self._log_id = self._log_id or header.log_id
        if header.log_id != self._log_id:
            self._unreadable(name, first, f"it belongs to another log ({header.log_id})")
            return
        if bad_copies:
            self._add(name, 0, "header", "one of the two copies of the header is damaged")
        self._frames(name, file, header, is_last=is_last)

    def _frames(self, name: str, file: File, header: fmt.Header, *, is_last: bool) -> None:
        seal = read_seal(file, header)
        end_offset = seal.end_offset if seal is not None else None
        known = set(seal.lost) if seal is not None else set()
        messages, gaps, last = _walk(file, header, end_offset)
        if gaps and seal is None:
            # Somebody may be writing right now: damage is what looks the same a second time.
            before = gaps
            messages, gaps, last = _walk(file, header, end_offset)
            gaps = [gap for gap in gaps if gap in before]
        self.report.messages += messages
        for gap in gaps:
            if gap.end_position == gap.position and _within(gap, known):
                self.report.known_losses.append((gap.first_offset, gap.end_offset))
            else:
                self._damaged_frames(name, gap)
        if seal is None:
            self._unsealed(name, file, header, last, is_last=is_last)
        self._next = self.report.end_offset = last.offset

    def _unsealed(
        self, name: str, file: File, header: fmt.Header, last: End, *, is_last: bool
    ) -> None:
        trailer_at = max(0, file.size() - fmt.TRAILER_BYTES)
        trailer = fmt.decode_trailer(file.pread(fmt.TRAILER_BYTES, trailer_at), header.seed)
        if trailer is not None or last.seal is not None or not is_last:
            at = last.position if trailer is not None else trailer_at
            self._add(name, at, "seal", "the index at the end is damaged; messages are not")
        elif last.torn_bytes:
            text = f"{name} ends with {last.torn_bytes} bytes of an interrupted write"
            self.report.notes.append(f"{text}, which opening the log drops")

    def _damaged_frames(self, name: str, gap: Gap) -> None:
        size, lost = gap.end_position - gap.position, gap.end_offset - gap.first_offset
        text = f"{size} damaged bytes" if size else "frames are missing"
        self._add(name, gap.position, "frames", text, gap.first_offset, lost)

    def _missing(self, first: int, end: int) -> None:
        self._add(file_name(first), 0, "missing", "the file is missing", first, end - first)

    def _unreadable(self, name: str, first: int, why: str) -> None:
        """How much was in it shows when the next file begins."""
        self._add(name, 0, "header", why, first)
        self._next = self.report.end_offset = first

    def _add(
        self,
        file: str,
        position: int,
        kind: str,
        detail: str,
        first: int | None = None,
        lost: int = 0,
    ) -> None:
        self.report.damage.append(Damage(file, position, kind, detail, first, lost))


def _walk(file: File, header: fmt.Header, end: int | None) -> tuple[int, list[Gap], End]:
    """How many messages are readable, what is not, and where it ends."""
    messages, gaps, last = 0, list[Gap](), End(header.first_offset, fmt.HEADER_BYTES)
    for item in scan_frames(file, header.seed, fmt.HEADER_BYTES, header.first_offset, end):
        if isinstance(item, Run):
            messages += len(item.messages)
        elif isinstance(item, Gap):
            gaps.append(item)
        else:
            last = item
    return messages, gaps, last


def _within(gap: Gap, known: set[tuple[int, int]]) -> bool:
    return any(first <= gap.first_offset and gap.end_offset <= end for first, end in known)
