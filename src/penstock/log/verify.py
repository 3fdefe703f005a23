"""Reads every byte of a log and says what is wrong with it; repairs it where told to."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.log import checkpoint as ckpt
from penstock.log import format as fmt
from penstock.log.inventory import file_name, first_offset_of, first_offsets
from penstock.log.recovery import recover
from penstock.log.scan import End, Gap, Run, read_header, read_seal, scan_frames
from penstock.log.survey import log_owners
from penstock.model.damage import DamageReport, KnownLoss
from penstock.model.errors import Damaged
from penstock.storage.files import read_whole, write_atomically

_ATTEMPTS = 5

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable
    from pathlib import Path

    from penstock.model.clock import Clock
    from penstock.storage.files import File, Files


def verify_log(
    files: Files,
    folder: Path,
    on_progress: Callable[[int], object] = lambda _: None,
    released: Callable[[], int | None] = lambda: None,
) -> DamageReport:
    """Verifies each file, their continuity and the checkpoint. Safe beside a running writer.

    `on_progress` hears how many bytes each file had. `released` says below which offset the log's
    owner let it remove files; None where nobody knows.
    """
    for _ in range(_ATTEMPTS):
        before = _look(files, folder)
        report = _verify_once(files, folder, on_progress, released)
        if report.sound or _look(files, folder) == before:
            break  # else files came, went or were finished meanwhile: that may be all there is
    return report


def _verify_once(
    files: Files,
    folder: Path,
    on_progress: Callable[[int], object],
    released: Callable[[], int | None],
) -> DamageReport:
    check = _Verification(files, folder)
    names = files.names(folder)
    firsts = first_offsets(names)
    check.checkpoint(names, firsts)
    for at, first in enumerate(firsts):
        before = check.report.bytes_checked
        check.file(file_name(first), firsts[at + 1] if at + 1 < len(firsts) else None)
        on_progress(check.report.bytes_checked - before)
    check.begins_where_it_may(released)
    check.ends_where_the_checkpoint_says()
    check.leftovers(names)
    return check.report


def _look(files: Files, folder: Path) -> list[tuple[str, int]]:
    """Names and sizes of what the folder holds."""
    seen = []
    for name in files.names(folder):
        with contextlib.suppress(OSError):
            file = files.open(folder / name)
            seen.append((name, file.size()))
            file.close()
    return seen


def verify_file(files: Files, path: Path) -> DamageReport:
    """Verifies one log file by itself."""
    check = _Verification(files, path.parent)
    check.file(path.name, None)
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
    def __init__(self, files: Files, folder: Path) -> None:
        self.report = DamageReport(str(folder), logs=1)
        self._files = files
        self._folder = folder
        self._start: int | None = None
        self._log_id: uuid.UUID | None = None
        self._next: int | None = None
        self._promised: ckpt.Checkpoint | None = None

    def checkpoint(self, names: list[str], firsts: list[int]) -> None:
        if ckpt.NAME not in names:
            if any(first_offset_of(name) is not None for name in names):
                self.report.note("there is no checkpoint; opening the log writes one")
            return
        self.report.files_checked += 1
        try:
            data = read_whole(self._files, self._folder / ckpt.NAME)
            found = ckpt.decode_checkpoint(data, self._folder)
        except Damaged as error:
            self.report.add_damage(
                ckpt.NAME, 0, "checkpoint", f"{error}; opening the log writes a new one"
            )
            return
        with contextlib.suppress(FileNotFoundError):  # retention was faster: looked at again
            owners = log_owners(self._files, self._folder, firsts)
            if owners and found.log_id not in owners:
                self.report.add_damage(ckpt.NAME, 0, "checkpoint", "it belongs to another log")
                self._log_id = owners.most_common(1)[0][0]
                return
        self._log_id = found.log_id
        self._promised = found

    def file(self, name: str, following: int | None) -> None:
        """Verifies a file; the next one begins with the offset `following`."""
        try:
            file = self._files.open(self._folder / name)
        except FileNotFoundError:  # retention was faster
            return
        try:
            self.report.read(file.size())
            self._file(name, file, following)
        finally:
            file.close()

    def begins_where_it_may(self, released: Callable[[], int | None]) -> None:
        """What was removed at the beginning and not let go of before is missing."""
        start, promised = self._start, self._promised
        if start is None or promised is None or promised.start_offset >= start:
            return
        through = released()
        kept_from = start if through is None else max(through, promised.start_offset)
        if kept_from < start:
            self._missing(kept_from, start)
        if promised.start_offset < min(kept_from, start):
            earlier = f"messages {promised.start_offset} to {min(kept_from, start) - 1}"
            self.report.note(f"{earlier} were removed, by retention or by hand")

    def ends_where_the_checkpoint_says(self) -> None:
        if self._promised is None:
            return
        end = self._promised.start_offset if self._next is None else self._next
        if end < self._promised.next_offset:
            self._missing(end, self._promised.next_offset)

    def leftovers(self, names: list[str]) -> None:
        for name in names:
            if ".wal.damaged" in name:
                self.report.note(f"{name} was set aside by an earlier repair")
            elif name.endswith(".tmp"):
                self.report.note(f"{name} is left from an interrupted write; harmless")

    def _file(self, name: str, file: File, following: int | None) -> None:
        first = first_offset_of(name) or 0
        if self._next is not None and first < self._next:
            self.report.add_damage(name, 0, "stray", "its offsets are in the file before it")
            return
        if self._next is not None and self._next < first:
            self._missing(self._next, first)
        if self._start is None:
            self._start = first
        must_reach = following
        if following is None and self._promised is not None:
            must_reach = self._promised.next_offset
        header, wrong = self._header(name, first, file)
        if header is None:
            end = max(first, must_reach or first)
            self.report.add_damage(name, 0, "header", wrong, first, end - first)
            self._next = end
        else:
            self._frames(name, file, header, following, must_reach)

    def _header(self, name: str, first: int, file: File) -> tuple[fmt.Header | None, str]:
        try:
            header, bad_copies = read_header(file)
        except Damaged as error:
            return None, str(error)
        if header.first_offset != first:
            return None, f"it says that it begins at {header.first_offset}"
        self._log_id = self._log_id or header.log_id
        if header.log_id != self._log_id:
            return None, f"it belongs to another log ({header.log_id})"
        if bad_copies:
            self.report.add_damage(
                name, 0, "header", "one of the two copies of the header is damaged"
            )
        return header, ""

    def _frames(
        self,
        name: str,
        file: File,
        header: fmt.Header,
        following: int | None,
        must_reach: int | None,
    ) -> None:
        seal = read_seal(file, header)
        messages, gaps, last = _walk(file, header, seal)
        if gaps and seal is None:
            # Somebody may be writing right now: damage is what looks the same a second time.
            before = gaps
            messages, gaps, last = _walk(file, header, seal)
            gaps = [gap for gap in gaps if gap in before]
        self.report.messages += messages
        known = seal.lost if seal is not None else ()
        for gap in gaps:
            if gap.recorded_in(known):
                lost = gap.first_offset, gap.end_offset - gap.first_offset
                self.report.known_losses.append(KnownLoss(str(self._folder), *lost))
            else:
                self._damaged_frames(name, gap)
        if seal is None:
            self._unsealed(name, file, header, last, is_last=following is None)
        end = last.offset
        if must_reach is not None and end < must_reach and seal is None:
            cut = Gap(end, must_reach, last.position, last.position + last.torn_bytes)
            self._damaged_frames(name, cut)
            end = must_reach
        self._next = end

    def _unsealed(
        self, name: str, file: File, header: fmt.Header, last: End, *, is_last: bool
    ) -> None:
        trailer_at = max(0, file.size() - fmt.TRAILER_BYTES)
        trailer = fmt.decode_trailer(file.pread(fmt.TRAILER_BYTES, trailer_at), header.seed)
        half_finished = last.seal is not None and _only_begun(file, header, last)
        if trailer is not None or not is_last or (last.seal is not None and not half_finished):
            text = "the index at the end is damaged or missing"
            self.report.add_damage(name, last.position, "seal", text)
        elif last.torn_bytes and not half_finished:
            text = f"{name} ends with {last.torn_bytes} bytes of an interrupted write"
            self.report.note(f"{text}, which opening the log drops")

    def _damaged_frames(self, name: str, gap: Gap) -> None:
        size, lost = gap.end_position - gap.position, gap.end_offset - gap.first_offset
        text = f"{size} damaged bytes" if size else "frames are missing"
        self.report.add_damage(name, gap.position, "frames", text, gap.first_offset, lost)

    def _missing(self, first: int, end: int) -> None:
        self.report.add_damage(
            file_name(first), 0, "missing", "the file is missing", first, end - first
        )


def _walk(file: File, header: fmt.Header, seal: fmt.Seal | None) -> tuple[int, list[Gap], End]:
    """How many messages are readable, what is not, and where it ends."""
    end = seal.end_offset if seal is not None else None
    messages, gaps, last = 0, list[Gap](), End(header.first_offset, fmt.HEADER_BYTES)
    for item in scan_frames(file, header.seed, fmt.HEADER_BYTES, header.first_offset, end):
        if isinstance(item, Run):
            messages += len(item.messages)
        elif isinstance(item, Gap):
            gaps.append(item)
        else:
            last = item
    return messages, gaps, last


def _only_begun(file: File, header: fmt.Header, last: End) -> bool:
    """Whether behind the seal stands what an interrupted finishing leaves: a part, then zeros."""
    assert last.seal is not None
    whole = fmt.encode_seal(last.seal, last.position, header.seed)
    found = file.pread(file.size() - last.position, last.position)
    return whole.startswith(found.rstrip(b"\0")) and len(found) != len(whole)
