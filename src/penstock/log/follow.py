"""Reads a log's folder from outside the process that writes it; takes no lock, changes nothing.

It sees messages when they are written, which may be a moment before they are synced: what the
writer's own readers see only after the acknowledgement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.log import format as fmt
from penstock.log.cache import Batch
from penstock.log.inventory import Lost, file_name
from penstock.log.scan import End, Gap, Run, read_header, read_seal, scan_frames
from penstock.log.survey import find_end, log_files
from penstock.model.errors import Damaged, OffsetUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.log.format import Header
    from penstock.storage.files import File, Files


class FolderReader:
    """A position in a log that somebody else may be writing."""

    def __init__(
        self, files: Files, folder: Path, start: int | Literal["earliest", "latest"] = "earliest"
    ) -> None:
        """OffsetUnavailable: `start` lies outside of what the folder holds."""
        self.lost: list[Lost] = []
        self._files = files
        self._folder = folder
        self._file: tuple[File, Header, str] | None = None
        self._at = (fmt.HEADER_BYTES, 0)  # a byte position in the file, and the offset there
        self._walk: Iterator[Run | Gap | End] | None = None
        self._doubt: Gap | End | None = None
        self._unreadable: set[int] = set()
        self.position = self._resolve(start)

    def read_batch(self) -> Batch | None:
        """The next messages that are there now, or None. Never waits."""
        while True:
            if self._file is None and not self._open():
                return None
            item = self._next_item()
            if isinstance(item, Run):
                self._doubt = None
                self._at = (item.end_position, item.first_offset + len(item.messages))
                batch = _from(item, self.position)
                if batch is not None:
                    self.position = self._at[1]
                    return batch
            elif isinstance(item, Gap):
                if not self._accept(item):
                    return None
            elif not self._go_on_behind(item):
                return None

    def close(self) -> None:
        if self._file is not None:
            self._file[0].close()
        self._file, self._walk = None, None

    def batches(self) -> Iterator[Batch]:
        """Everything that is there now; damage is passed over once it was looked at twice."""
        while True:
            doubt = self._doubt
            batch = self.read_batch()
            if batch is not None:
                yield batch
            elif self._doubt == doubt:
                return

    def _next_item(self) -> Run | Gap | End:
        assert self._file is not None
        file, header, _ = self._file
        if self._walk is None:
            self._walk = scan_frames(file, header.seed, *self._at, None)
        return next(self._walk)

    def _accept(self, gap: Gap) -> bool:
        """Passes over damage, but not before a second look: the writer may be at it right now."""
        if self._doubt != gap:
            self._doubt, self._walk = gap, None
            return False
        assert self._file is not None
        file, header, name = self._file
        first = max(self.position, gap.first_offset)
        if gap.end_offset > first:
            seal = read_seal(file, header)
            recorded = seal is not None and gap.recorded_in(seal.lost)
            reason = "recorded as lost" if recorded else "damaged frames"
            place = (first, gap.end_offset, name, gap.position, reason)
            self.lost.append(Lost(*place, recorded))
            self.position = gap.end_offset
        self._at = (gap.end_position, gap.end_offset)
        return True

    def _go_on_behind(self, end: End) -> bool:
        """At the end of a finished file: to the next. Else the end may move: look again later."""
        assert self._file is not None
        self._walk = None
        following = self._following(self._file[1].first_offset)
        if following is None:
            return self._take_replacement(end)
        if end.seal is None and self._doubt != end:
            self._doubt = end  # it may have been finished since; what it holds now is final
            return self._take_replacement(end) or True
        self.close()
        self._pass_over(following, "the file is missing")
        return True

    def _take_replacement(self, end: End) -> bool:
        """Recovery puts another file under the same name; True where that has happened."""
        assert self._file is not None
        _, header, name = self._file
        if end.seal is not None:
            return False
        try:
            file = self._files.open(self._folder / name)
        except FileNotFoundError:  # replaced, then removed by retention
            self.close()
            return True
        try:
            found, _ = read_header(file)
            replaced = found != header or read_seal(file, found) is not None
        except Damaged:
            replaced = False
        finally:
            file.close()
        if replaced:
            self.close()
        return replaced

    def _open(self) -> bool:
        """Opens the file with the position in it; False where there is none yet."""
        firsts = log_files(self._files, self._folder)
        if firsts and self.position < firsts[0]:
            text = f"offset {self.position} is gone: the log begins at {firsts[0]}"
            raise OffsetUnavailable(text, earliest=firsts[0], end=firsts[-1])
        holding = [first for first in firsts if first <= self.position]
        if not holding:
            return False
        name = file_name(holding[-1])
        try:
            file = self._files.open(self._folder / name)
        except FileNotFoundError:  # removed just now
            return False
        try:
            header, _ = read_header(file)
            if header.first_offset != holding[-1]:
                raise Damaged(f"the header says it begins at offset {header.first_offset}")
        except Damaged as error:
            file.close()
            following = self._following(holding[-1])
            if following is not None:
                self._pass_over(following, str(error))
            elif holding[-1] not in self._unreadable:  # nobody knows how many it holds
                self._unreadable.add(holding[-1])
                self.lost.append(Lost(self.position, self.position, name, 0, str(error)))
            return following is not None and self._open()
        self._file, self._at = (file, header, name), (fmt.HEADER_BYTES, header.first_offset)
        seal = read_seal(file, header)
        for offset, byte in seal.index if seal is not None else ():
            if offset <= self.position:
                self._at = (byte, offset)
        return True

    def _following(self, first: int) -> int | None:
        later = [other for other in log_files(self._files, self._folder) if other > first]
        return later[0] if later else None

    def _pass_over(self, end_offset: int, reason: str) -> None:
        if end_offset > self.position:
            name = file_name(self.position)
            self.lost.append(Lost(self.position, end_offset, name, 0, reason))
            self.position = end_offset

    def _resolve(self, start: int | Literal["earliest", "latest"]) -> int:
        firsts = log_files(self._files, self._folder)
        earliest = firsts[0] if firsts else 0
        if start == "earliest":
            return earliest
        end = find_end(self._files, self._folder, firsts[-1]) if firsts else 0
        offset = end if start == "latest" else int(start)
        if not earliest <= offset <= end:
            text = f"offset {offset} is not in the log, which has {earliest} to {end}"
            raise OffsetUnavailable(text, earliest=earliest, end=end)
        return offset


def _from(run: Run, offset: int) -> Batch | None:
    skip = max(0, offset - run.first_offset)
    messages = run.messages[skip:] if skip else run.messages
    return Batch(run.first_offset + skip, messages) if messages else None
