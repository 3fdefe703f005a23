"""Reads every byte of a store and says what is wrong with it.

The store's log is not looked at here: `penstock.log.verify` does that.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.log import format as log_format
from penstock.log.scan import Gap, Run, read_header, scan_frames
from penstock.model.damage import DamageReport, KnownLoss
from penstock.model.errors import Damaged
from penstock.segment import SegmentReader, segment_name, segment_seq_of
from penstock.storage.documents import decode_document
from penstock.storage.files import read_whole
from penstock.store.ack_log import (
    CHECKPOINT_KIND,
    CHECKPOINT_NAME,
    CHECKPOINT_VERSION,
    LOG_NAME,
)
from penstock.store.format import decode_event
from penstock.store.recovery import Recovered, replay
from penstock.store.state import StoreState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.segment import SegmentInfo
    from penstock.storage.files import File, Files

_ATTEMPTS = 5


# --- looking from outside ----------------------------------------------------------------------


def is_store(files: Files, folder: Path) -> bool:
    """Whether the folder holds more than a log."""
    names = files.names(folder)
    return LOG_NAME in names or CHECKPOINT_NAME in names or bool(segment_files(files, folder))


def segment_files(files: Files, folder: Path) -> list[int]:
    """The numbers of the segments there are."""
    names = files.names(folder / "segments")
    return [seq for name in names if (seq := segment_seq_of(name)) is not None]


def survey_store(files: Files, folder: Path) -> Recovered:
    """What the acknowledgement log proves at this moment; safe beside a running store."""
    found = replay(files, folder)
    for _ in range(_ATTEMPTS):
        if not found.problems:
            break  # else somebody may be writing right now
        found = replay(files, folder)
    found.state.advance()
    return found


# --- verifying ---------------------------------------------------------------------------------


def verify_store(
    files: Files, folder: Path, on_progress: Callable[[int], object] = lambda _: None
) -> DamageReport:
    """Verifies `ack.log`, `ack.ckpt` and each segment. Safe beside a running store.

    `on_progress` hears how many bytes each segment had.
    """
    check = _Verification(files, folder)
    check.checkpoint()
    check.ack_log()
    check.segments(on_progress)
    check.leftovers()
    return check.report


def verify_store_file(files: Files, path: Path) -> DamageReport:
    """Verifies one segment, `ack.log` or `ack.ckpt` by itself."""
    folder = path.parent if segment_seq_of(path.name) is None else path.parent.parent
    check = _Verification(files, folder)
    if path.name == LOG_NAME:
        check.ack_log()
    elif path.name == CHECKPOINT_NAME:
        check.checkpoint()
    else:
        check.segment(path, None)
    return check.report


class _Verification:
    def __init__(self, files: Files, folder: Path) -> None:
        self.report = DamageReport(str(folder), stores=1)
        self._files = files
        self._folder = folder
        self._state = StoreState()

    def checkpoint(self) -> None:
        try:
            data = read_whole(self._files, self._folder / CHECKPOINT_NAME)
        except FileNotFoundError:
            return
        self.report.read(len(data))
        try:
            document = decode_document(CHECKPOINT_KIND, CHECKPOINT_VERSION, data)
            StoreState().load(document)
        except (Damaged, ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"unreadable: {error}; opening the store writes a new one"
            self.report.add_damage(CHECKPOINT_NAME, 0, "checkpoint", text)

    def ack_log(self) -> None:
        try:
            file = self._files.open(self._folder / LOG_NAME)
        except FileNotFoundError:
            names = self._files.names(self._folder)
            if CHECKPOINT_NAME in names or segment_files(self._files, self._folder):
                text = "the file is missing: answers since the checkpoint are asked for again"
                self.report.add_damage(LOG_NAME, 0, "missing", text)
            return
        try:
            self.report.read(file.size())
            damage = list(_bad_events(file))
        finally:
            file.close()
        if damage:  # somebody may be writing right now: what looks the same a second time counts
            with contextlib.suppress(FileNotFoundError):
                file = self._files.open(self._folder / LOG_NAME)
                again = list(_bad_events(file))
                file.close()
                damage = [each for each in damage if each in again]
        for found in damage:
            self.report.add_damage(LOG_NAME, *found)

    # --- segments ------------------------------------------------------------------------------

    def segments(self, on_progress: Callable[[int], object]) -> None:
        known = self._look()
        present = segment_files(self._files, self._folder)
        for seq in present:
            before = self.report.bytes_checked
            self.segment(self._folder / "segments" / segment_name(seq), known.get(seq))
            on_progress(self.report.bytes_checked - before)
        if missing := known.keys() - set(present):
            known = self._look()  # a removal is recorded before the file goes
            for seq in sorted(missing & known.keys()):
                self._lose(segment_name(seq), "missing", "the file is missing", known[seq])
        for seq in sorted(set(present) - known.keys()):
            if seq >= self._state.next_seq:
                text = "is not in ack.log; opening the store takes it in"
                self.report.note(f"{segment_name(seq)} {text}")

    def segment(self, path: Path, info: SegmentInfo | None) -> None:
        """Verifies one segment; `info` is what ack.log says of it."""
        try:
            reader = SegmentReader.open(self._files, path)
        except FileNotFoundError:  # removed meanwhile
            return
        except Damaged as error:
            self.report.read(_size(self._files, path))
            self._lose(path.name, "segment", str(error).removeprefix(f"{path.name}: "), info)
            return
        self.report.read(reader.info.size)
        if reader.info.segment_seq != segment_seq_of(path.name):
            text = f"it says that it is segment {reader.info.segment_seq}"
            self._lose(path.name, "stray", text, info)
        elif info is not None and reader.info != info:
            self._lose(path.name, "stray", "it is not the segment that ack.log names", info)
        else:
            self._contents(reader)

    def _contents(self, reader: SegmentReader) -> None:
        gone: set[int] = set()
        for found in reader.verify():
            first, messages = _cost(reader, set(found.bundles) - gone)
            bits = sum(1 << index for index in found.bundles)
            gone.update(found.bundles)
            if found.bundles and self._settled(reader.info, bits):
                if messages:
                    self.report.known_losses.append(KnownLoss(str(self._folder), first, messages))
                continue
            lost = (first, messages) if messages else ()
            self.report.add_damage(
                f"segments/{reader.name}", found.position, "segment", found.reason, *lost
            )
        self.report.segments += 1
        self.report.bundles += len(reader) - len(gone)

    def _settled(self, info: SegmentInfo, bits: int) -> bool:
        """Whether nobody waits for these bundles any more, and somebody did."""
        subscribers = self._state.subscribers.values()
        waiting = any(each.missing(info) & bits for each in subscribers)
        return bool(subscribers) and info.segment_seq in self._state.segments and not waiting

    # --- the rest ------------------------------------------------------------------------------

    def leftovers(self) -> None:
        for name in self._files.names(self._folder):
            if ".damaged" in name:
                self.report.note(f"{name} was set aside")
        for name in self._files.names(self._folder / "segments"):
            if ".damaged" in name:
                self.report.note(f"{name} was set aside")
            elif name.endswith(".tmp"):
                text = "is being written, or is left from an interrupted write; harmless"
                self.report.note(f"{name} {text}")
        if aside := self._files.names(self._folder / "aside"):
            count = len([name for name in aside if not name.endswith(".tmp")])
            self.report.note(f"messages in aside that could not be decoded: {count}")

    def _look(self) -> dict[int, SegmentInfo]:
        """The segments that there should be."""
        if not is_store(self._files, self._folder):
            return {}
        self._state = survey_store(self._files, self._folder).state
        return dict(self._state.segments)

    def _lose(self, name: str, kind: str, text: str, info: SegmentInfo | None) -> None:
        """A segment of which nothing can be read."""
        lost = (info.first_offset, info.end_offset - info.first_offset) if info is not None else ()
        self.report.add_damage(f"segments/{name}", 0, kind, text, *lost)


def _bad_events(file: File) -> Iterator[tuple[int, str, str]]:
    """What of an acknowledgement log cannot be read: position, kind, and why."""
    try:
        header, bad_copies = read_header(file)
    except Damaged as error:
        yield 0, "header", str(error)
        return
    if bad_copies:
        yield 0, "header", "one of the two copies of the header is damaged"
    walk = scan_frames(file, header.seed, log_format.HEADER_BYTES, header.first_offset, None)
    for item in walk:
        if isinstance(item, Gap):
            count = item.end_offset - item.first_offset
            text = f"{count} damaged events; the answers in them are asked for again"
            yield item.position, "events", text
        elif isinstance(item, Run):
            yield from _not_understood(item)


def _not_understood(run: Run) -> Iterator[tuple[int, str, str]]:
    position = run.position
    for number, message in enumerate(run.messages, run.first_offset):
        try:
            decode_event(message)
        except Damaged as error:
            yield position, "events", f"event {number}: {error}"
        position += log_format.FRAME_BYTES + len(message)


def _cost(reader: SegmentReader, bundles: set[int]) -> tuple[int, int]:
    """The first offset of these bundles, and how many messages they hold."""
    first, messages = reader.info.first_offset, 0
    for index in sorted(bundles, reverse=True):
        with contextlib.suppress(Damaged):
            entry = reader.manifest(index)
            first, messages = entry.first_offset, messages + entry.messages
    return first, messages


def _size(files: Files, path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        file = files.open(path)
        try:
            return file.size()
        finally:
            file.close()
    return 0
