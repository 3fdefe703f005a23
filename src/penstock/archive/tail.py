"""Reads a log's files up to a given offset, from a byte position that an earlier reading noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.archive.format import Place
from penstock.log.cache import Batch
from penstock.log.follow import FolderReader
from penstock.log.format import FRAME_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.storage.files import Files


class LogTail(FolderReader):
    """A `FolderReader` that goes on where a `Place` says, and says its own."""

    def __init__(self, files: Files, folder: Path, offset: int, place: Place | None) -> None:
        """A place that does not fit the offset or the file is not used, and costs time only."""
        self._begin = place if place is not None and place.offset == offset else None
        super().__init__(files, folder, offset)

    def read(self, end: int) -> Batch | None:
        """The next messages below `end` that are there now, or None. Never waits."""
        if self.position >= end:
            return None
        batch = self.read_batch()
        if batch is None or self.position <= end:
            return batch
        kept = max(0, end - batch.first_offset)
        self._give_back(batch.messages[kept:])
        return Batch(batch.first_offset, batch.messages[:kept]) if kept else None

    @property
    def place(self) -> Place | None:
        """Where the next message begins; None where no file is open."""
        if self._file is None:
            return None
        _, header, name = self._file
        position, offset = self._at
        return Place(name, position, offset, header.seed)

    def _give_back(self, messages: list[bytes]) -> None:
        """The last messages were not wanted: they are read again."""
        position, offset = self._at
        size = sum(map(len, messages)) + FRAME_BYTES * len(messages)
        self._at = (position - size, offset - len(messages))
        self.position = self._at[1]
        self._walk = None

    def _open(self) -> bool:
        opened = super()._open()
        begin, self._begin = self._begin, None
        if opened and begin is not None and self._file is not None:
            _, header, name = self._file
            if (name, header.seed) == (begin.file, begin.seed):
                self._at = (begin.position, begin.offset)
        return opened

    def _resolve(self, start: int | str) -> int:
        """Does not look for the end: `read` is told it."""
        assert isinstance(start, int)
        return start
