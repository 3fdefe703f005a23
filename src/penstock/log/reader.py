"""Reads a log from any offset: files, then the cache, then whatever comes, as one stream."""

from __future__ import annotations

import bisect
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.log import format as fmt
from penstock.log.cache import Batch
from penstock.log.inventory import Lost, file_name, first_offset_of
from penstock.log.scan import Gap, Run, read_header, read_seal, scan_frames
from penstock.model.errors import Damaged, OffsetUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from penstock.log.log import Log
    from penstock.log.scan import End
    from penstock.storage.files import File, Files

_LOG = logging.getLogger(__name__)


class Message(NamedTuple):
    """One message as it was appended."""

    offset: int
    data: bytes


class Location(NamedTuple):
    """A file to read from."""

    path: Path
    first_offset: int
    end_offset: int
    """One past the last message to read from it; grows while the file is being written."""
    sparse_index: Sequence[tuple[int, int]] | None
    """(offset, position) pairs of a file that has no seal yet; None: read the seal."""


class Reader:
    """A position in a log, and the way on from there. Not for two threads at once.

    Messages come in order, each once. Damaged ones are passed over and listed in `lost`. Where
    retention removed what was to come next, reading raises OffsetUnavailable. Any number of
    readers may run, each at its own pace; none holds up the writer.
    """

    def __init__(self, log: Log, files: Files, offset: int, *, follow: bool) -> None:
        self.position = offset
        self.lost: list[Lost] = []
        self._log = log
        self._files = files
        self._follow = follow
        self._file: _OpenFile | None = None

    def read_batch(self) -> Batch | None:
        """The next messages that are there now (about 1 MiB), or None at the end. Never waits."""
        while self.position < self._log.end_offset:
            batch = self._log.cached(self.position)
            if batch is not None:
                self._close_file()
            else:
                batch = self._from_file()
            if batch is not None:
                self.position = batch.first_offset + len(batch.messages)
                return batch
        return None

    def next_batch(self, timeout: float | None = None) -> Batch | None:
        """The next messages, waiting for them; None after the timeout or when the log closed."""
        until = None if timeout is None else time.monotonic() + timeout
        while (batch := self.read_batch()) is None and not self._is_over():
            commit = self._log.next_commit(self.position)
            left = None if until is None else until - time.monotonic()
            if commit is not None and not commit.settle(left):
                return None
        return batch

    async def next_batch_async(self) -> Batch | None:
        """The next messages, awaiting them; None when the log closed. Safe to cancel."""
        while (batch := self.read_batch()) is None and not self._is_over():
            commit = self._log.next_commit(self.position)
            if commit is not None:
                await commit.settle_async()
        return batch

    def __iter__(self) -> Iterator[Message]:
        """Message by message: to the end, or for ever with `follow`."""
        while (batch := self.next_batch() if self._follow else self.read_batch()) is not None:
            yield from map(Message, _offsets(batch), batch.messages)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Message by message: to the end, or for ever with `follow`."""
        while True:
            batch = await self.next_batch_async() if self._follow else self.read_batch()
            if batch is None:
                return
            for offset, data in zip(_offsets(batch), batch.messages, strict=True):
                yield Message(offset, data)

    def close(self) -> None:
        """Gives back the file it has open. Reading on opens it again."""
        self._close_file()

    def _is_over(self) -> bool:
        """Whether nothing will ever come; raises why, unless the log was simply closed."""
        if self._log.next_commit(self.position) is not None:
            return False
        if self.position < self._log.end_offset:
            return False
        self._log.check_readable()
        return True

    def _from_file(self) -> Batch | None:
        """The next batch from a file; None where the position only moved past damage."""
        if self._file is None or not self._file.holds(self.position):
            self._close_file()
            self._file = self._open_file()
            if self._file is None:
                return None
        item = next(self._file.walk)
        if isinstance(item, Run):
            return Batch(item.first_offset, item.messages)
        if isinstance(item, Gap):
            self._pass_over(item.end_offset, self._file.name, item.position, "damaged frames")
        else:
            self._close_file()  # read to its end, which may have moved since
        return None

    def _open_file(self) -> _OpenFile | None:
        """The file with the position in it; None where the position moved over a lost file."""
        location = self._log.locate(self.position)
        # In this order: what retention removed before the look is gone, and not lost.
        earliest, end = self._log.start_offset, self._log.end_offset
        if self.position < earliest:
            text = f"offset {self.position} is gone: the log begins at {earliest}"
            raise OffsetUnavailable(text, earliest=earliest, end=end)
        begins = end if location is None else location.first_offset
        if location is None or begins > self.position:
            self._pass_over(begins, file_name(self.position), 0, "the file is missing")
            return None
        try:
            return _OpenFile(self._files, location, self.position)
        except FileNotFoundError:
            if self.position >= self._log.start_offset:  # not retention, but somebody's hand
                self._pass_over(location.end_offset, location.path.name, 0, "the file is missing")
            return None

    def _pass_over(self, end_offset: int, file: str, position: int, reason: str) -> None:
        if end_offset > self.position:
            lost = Lost(self.position, end_offset, file, position, reason)
            self.lost.append(lost)
            _LOG.error("passed over %s", lost)
            self.position = end_offset

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        """A dropped reader leaves no file open."""
        self._close_file()


class _OpenFile:
    """One file, being walked."""

    def __init__(self, files: Files, location: Location, offset: int) -> None:
        self.name = location.path.name
        self._file: File | None = files.open(location.path)
        try:
            self.walk = self._begin(self._file, location, offset)
        except BaseException:
            self.close()
            raise
        self._first, self._end = location.first_offset, location.end_offset

    def holds(self, offset: int) -> bool:
        return self._first <= offset < self._end

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, file: File, location: Location, offset: int) -> Iterator[Run | Gap | End]:
        """Starts at the last index entry before `offset`, and drops what lies between."""
        try:
            header, _ = read_header(file)
        except Damaged:
            return iter([Gap(offset, location.end_offset, 0, file.size())])
        if header.first_offset != first_offset_of(location.path.name):
            return iter([Gap(offset, location.end_offset, 0, file.size())])
        index = location.sparse_index
        if index is None:
            seal = read_seal(file, header)
            index = seal.index if seal is not None else ()
        at = bisect.bisect_right(index, (offset, fmt.SEAL_OFFSET)) - 1
        start = index[at] if at >= 0 else (header.first_offset, fmt.HEADER_BYTES)
        walk = scan_frames(file, header.seed, start[1], start[0], location.end_offset)
        return _from_offset(walk, offset)


def _from_offset(walk: Iterator[Run | Gap | End], offset: int) -> Iterator[Run | Gap | End]:
    for item in walk:
        if isinstance(item, Run) and item.first_offset < offset:
            messages = item.messages[offset - item.first_offset :]
            if messages:
                yield Run(offset, messages, item.position, item.frames)
        elif isinstance(item, Gap) and item.first_offset < offset:
            if item.end_offset > offset:
                yield Gap(offset, item.end_offset, item.position, item.end_position)
        else:
            yield item


def _offsets(batch: Batch) -> range:
    return range(batch.first_offset, batch.first_offset + len(batch.messages))
