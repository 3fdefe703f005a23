"""Opening a folder of log files after anything may have happened to it.

Sealed files are taken at their word: their messages are verified when they are read. A file that
was never sealed was being written when the process ended. Its valid frames are copied into a new,
sealed file, which then takes its name:

- a torn tail is left out;
- after a failed fsync the old file's pages may read well now and be gone tomorrow; the copy is
  written and synced anew;
- until the rename the old file is untouched, so recovery may be interrupted anywhere.

Where frames in the middle are damaged the old file stays beside the copy as `….damaged`.
"""

from __future__ import annotations

import itertools
import logging
import os
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.log import checkpoint as ckpt
from penstock.log import format as fmt
from penstock.log.inventory import LogFile, Lost, file_name, first_offset_of, first_offsets
from penstock.log.scan import End, Gap, Run, read_header, read_seal, scan_frames
from penstock.log.survey import log_owners
from penstock.model.errors import Damaged, DiskFull, FormatError
from penstock.storage.files import OUT_OF_FILES, OUT_OF_SPACE, read_whole, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from penstock.model.clock import Clock
    from penstock.storage.files import File, Files

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Recovered:
    """A log's folder, understood."""

    log_id: uuid.UUID | None = None
    files: list[LogFile] = field(default_factory=list)
    next_offset: int = 0
    lost: list[Lost] = field(default_factory=list)
    """What could not be read and was found just now."""
    lost_before: list[Lost] = field(default_factory=list)
    """What earlier repairs recorded."""
    torn_bytes: int = 0


def recover(files: Files, folder: Path, clock: Clock, *, verify: bool = False) -> Recovered:
    """Brings the folder into order and says what is in it. The caller holds the folder's lock.

    `verify` reads every message of sealed files too, and repairs what is damaged.
    """
    return _Recovery(files, folder, clock, verify).run()


def load_checkpoint(files: Files, folder: Path) -> ckpt.Checkpoint | None:
    """The checkpoint, if there is one that can be relied on."""
    try:
        return ckpt.decode_checkpoint(read_whole(files, folder / ckpt.NAME), folder)
    except FileNotFoundError:
        return None
    except (FormatError, OSError) as error:
        if isinstance(error, OSError) and error.errno in OUT_OF_FILES:
            raise  # it may be as good as ever: nothing is decided without it
        _LOG.warning("%s: %s; reading the files instead", folder / ckpt.NAME, error)
        return None


class _Recovery:
    def __init__(self, files: Files, folder: Path, clock: Clock, verify: bool) -> None:
        self._files = files
        self._folder = folder
        self._clock = clock
        self._verify = verify
        self._found = Recovered()

    def run(self) -> Recovered:
        names = self._files.names(self._folder)
        for name in names:
            if name.endswith(".tmp"):  # from before a rename: nothing relies on it
                self._files.remove(self._folder / name)
        checkpoint = load_checkpoint(self._files, self._folder)
        firsts = first_offsets(names)
        owners = log_owners(self._files, self._folder, firsts)
        if checkpoint is not None and owners and checkpoint.log_id not in owners:
            _LOG.warning("%s: the checkpoint is another log's; reading the files", self._folder)
            checkpoint = None
        known = {} if checkpoint is None else _by_offset(checkpoint.files)
        if checkpoint is not None:
            self._found.log_id = checkpoint.log_id
        elif owners:
            self._found.log_id = owners.most_common(1)[0][0]
        for at, first in enumerate(firsts):
            following = firsts[at + 1] if at + 1 < len(firsts) else None
            self._take(first, following, known.get(first))
        if checkpoint is not None:
            if not firsts:
                self._found.next_offset = checkpoint.start_offset
            self._expect(checkpoint.next_offset)
        self._found.lost_before = [
            Lost(first, end, file.path.name, 0, "recorded by an earlier repair")
            for file in self._found.files
            for first, end in file.lost
            if not any(first <= lost.first_offset < end for lost in self._found.lost)
        ]
        return self._found

    def _take(self, first: int, following: int | None, known: LogFile | None) -> None:
        """Adds the file that begins with offset `first`; the next one begins with `following`."""
        path = self._folder / file_name(first)
        if self._found.files:
            self._expect(first)
        if first < self._found.next_offset:  # a stray: the file before holds its offsets
            self._set_aside(path, "its offsets are in the file before it")
            self._files.remove(path)  # the second name has been synced: nothing is deleted
            self._files.sync_folder(self._folder)
            return
        self._found.next_offset = first
        file = self._files.open(path)
        try:
            vouched = known is not None and known.size == file.size()
            vouched = vouched and self._identify(path, file)[0] is not None
            if vouched and not self._verify:
                taken = known
            else:
                taken = self._examine(path, file, following, vouched=vouched)
        finally:
            file.close()
        if taken is not None:
            self._add(taken)

    def _examine(
        self, path: Path, file: File, following: int | None, *, vouched: bool
    ) -> LogFile | None:
        header, reason = self._identify(path, file)
        if header is None:
            return self._write_off(path, file.size(), following, reason)
        seal = read_seal(file, header)
        if seal is None:
            return self._rebuild(path, file, header, None, at_least=following)
        # The next file is begun, and the checkpoint written, after the seal was synced.
        synced = vouched or following is not None
        if not synced or (self._verify and not self._is_sound(file, header, seal)):
            return self._rebuild(path, file, header, seal.end_offset, seal.lost)
        sealed = (header.first_offset, seal.end_offset, file.size(), seal.sealed_at_ns, seal.lost)
        return LogFile(path, *sealed)

    def _identify(self, path: Path, file: File) -> tuple[fmt.Header | None, str]:
        try:
            header, _ = read_header(file)
        except Damaged as error:
            return None, str(error)
        if header.first_offset != first_offset_of(path.name):
            return None, f"the header says it begins at offset {header.first_offset}"
        if header.log_id != self._found.log_id:
            return None, f"the file belongs to another log ({header.log_id})"
        return header, ""

    def _is_sound(self, file: File, header: fmt.Header, seal: fmt.Seal) -> bool:
        if read_header(file)[1]:
            return False
        walk = scan_frames(
            file, header.seed, fmt.HEADER_BYTES, header.first_offset, seal.end_offset
        )
        lost = [(item.first_offset, item.end_offset) for item in walk if isinstance(item, Gap)]
        return tuple(lost) == seal.lost

    def _rebuild(
        self,
        path: Path,
        file: File,
        header: fmt.Header,
        end: int | None,
        recorded: tuple[tuple[int, int], ...] = (),
        at_least: int | None = None,
    ) -> LogFile | None:
        """Copies what is readable into a sealed file of the same name.

        `end` is the offset behind its last message, if a seal says so; `at_least` how far it must
        reach for the next file to follow; `recorded` what earlier repairs gave up.
        """
        walk = scan_frames(file, header.seed, fmt.HEADER_BYTES, header.first_offset, end)
        first = next(walk)
        reaches = at_least is None or header.first_offset >= at_least
        if isinstance(first, End) and first.seal is None and reaches:
            # Nothing was ever written whole. The name alone carries the offset on.
            self._found.torn_bytes += first.torn_bytes
            return None
        scratch = path.with_name(path.name + ".tmp")
        whole = _reaching(itertools.chain([first], walk), at_least)
        rebuilt = self._write_copy(scratch, header, whole)
        self._found.torn_bytes += rebuilt.torn_bytes
        damage = [gap for gap in rebuilt.gaps if not gap.recorded_in(recorded)]
        for gap in damage:
            lost = (gap.first_offset, gap.end_offset, path.name, gap.position)
            self._report(Lost(*lost, f"{gap.end_position - gap.position} bytes are damaged"))
        if damage:
            self._set_aside(path, "damaged frames")
        # The copy is whole, sealed and synced, and what it could not take over has a second name:
        # only now may it replace the file that readers and the next recovery rely on.
        self._files.rename(scratch, path)
        self._files.sync_folder(self._folder)
        seal = rebuilt.seal
        return LogFile(
            path, header.first_offset, seal.end_offset, rebuilt.size, seal.sealed_at_ns, seal.lost
        )

    def _write_copy(
        self, scratch: Path, header: fmt.Header, walk: Iterable[Run | Gap | End]
    ) -> _Rebuilt:
        try:
            copy = self._files.create(scratch)
            try:
                rebuilt = _copy_frames(walk, copy, header, self._clock.wall_ns())
                copy.sync()
            finally:
                copy.close()
        except OSError as error:
            if error.errno in OUT_OF_SPACE:
                text = f"no space left to recover {scratch.with_suffix('')}; nothing is lost"
                raise DiskFull(text) from error
            raise
        return rebuilt

    def _write_off(
        self, path: Path, size: int, following: int | None, reason: str
    ) -> LogFile | None:
        """Loses a whole file. Offsets that may have been in it are not given out again."""
        self._set_aside(path, reason)
        first = self._found.next_offset
        end = following if following is not None else first + size // fmt.FRAME_BYTES
        if end == first:
            return None  # its name still says which offset comes next, and the next file takes it
        self._report(Lost(first, end, path.name, 0, reason))
        return self._record_loss(first, end)

    def _expect(self, offset: int) -> None:
        """Records that the file is missing which held the offsets up to this one."""
        first = self._found.next_offset
        if first < offset:
            self._report(Lost(first, offset, file_name(first), 0, "the file is missing"))
            self._add(self._record_loss(first, offset))

    def _record_loss(self, first: int, end: int) -> LogFile:
        """A file without messages that says which offsets were lost, so that it is said once."""
        self._found.log_id = self._found.log_id or uuid.uuid4()
        now = self._clock.wall_ns()
        header = fmt.new_header(self._found.log_id, first, now, os.urandom(8))
        lost = ((first, end),)
        seal = fmt.encode_seal(fmt.Seal(end, now, 0, lost), fmt.HEADER_BYTES, header.seed)
        path = self._folder / file_name(first)
        write_atomically(self._files, path, fmt.encode_header(header) + seal)
        return LogFile(path, first, end, fmt.HEADER_BYTES + len(seal), now, lost)

    def _add(self, file: LogFile) -> None:
        self._found.files.append(file)
        self._found.next_offset = file.end_offset

    def _report(self, lost: Lost) -> None:
        if lost.messages:
            _LOG.error("%s: lost %s", self._folder, lost)
            self._found.lost.append(lost)

    def _set_aside(self, path: Path, reason: str) -> None:
        """Gives the file a second name ending in `.damaged`, before another takes the first."""
        aside = path.with_name(path.name + ".damaged")
        number = 1
        while True:
            try:
                self._files.link(path, aside)
                break
            except FileExistsError:
                number += 1
                aside = path.with_name(f"{path.name}.damaged-{number}")
        self._files.sync_folder(self._folder)
        _LOG.error("%s is kept as %s: %s", path, aside.name, reason)


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    seal: fmt.Seal
    size: int
    gaps: list[Gap]
    torn_bytes: int


def _copy_frames(
    walk: Iterable[Run | Gap | End], target: File, header: fmt.Header, sealed_at_ns: int
) -> _Rebuilt:
    target.pwrite([fmt.encode_header(header)], 0)
    position, messages, index, gaps = fmt.HEADER_BYTES, 0, list[tuple[int, int]](), list[Gap]()
    last = End(header.first_offset, position)
    for item in walk:
        if isinstance(item, Run):
            index.append((item.first_offset, position))
            target.pwrite([item.frames], position)  # verified, and bound to the same header
            position += len(item.frames)
            messages += len(item.messages)
        elif isinstance(item, Gap):
            gaps.append(item)
        else:
            last = item
    lost = _merged([(gap.first_offset, gap.end_offset) for gap in gaps])
    seal = fmt.Seal(last.offset, sealed_at_ns, messages, lost, tuple(index))
    data = fmt.encode_seal(seal, position, header.seed)
    target.pwrite([data], position)
    return _Rebuilt(seal, position + len(data), gaps, last.torn_bytes)


def _reaching(walk: Iterable[Run | Gap | End], offset: int | None) -> Iterator[Run | Gap | End]:
    """The walk, with a gap at its end where it does not come as far as the offset."""
    for item in walk:
        if isinstance(item, End) and offset is not None and item.offset < offset:
            yield Gap(item.offset, offset, item.position, item.position + item.torn_bytes)
            yield End(offset, item.position, 0, item.seal)
        else:
            yield item


def _merged(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, end in spans:
        if first == end:
            continue
        if merged and merged[-1][1] == first:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((first, end))
    return tuple(merged)


def _by_offset(files: Iterable[LogFile]) -> dict[int, LogFile]:
    return {file.first_offset: file for file in files}
