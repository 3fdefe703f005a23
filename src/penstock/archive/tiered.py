"""One stream over everything a topic has: its archive, then the log files, as they grow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.archive.reader import ArchiveReader
from penstock.log.follow import FolderReader
from penstock.log.survey import log_files
from penstock.model.errors import OffsetUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.archive.catalog import Catalog
    from penstock.log.cache import Batch
    from penstock.log.inventory import Lost
    from penstock.storage.files import Files


class TieredReader:
    """A position in a topic, wherever its messages are. For one task at a time.

    Messages come in order, without gap or repetition; what is damaged is passed over and listed in
    `lost`. ArchiveUnavailable says which offsets cannot be had now: reading on later tries again.
    OffsetUnavailable: retention removed what was to come next. Safe to cancel.
    """

    def __init__(self, catalog: Catalog, files: Files, log_folder: Path, offset: int) -> None:
        """The log may be another process's, nobody's, or not there."""
        self.position = offset
        self._catalog = catalog
        self._files = files
        self._log_folder = log_folder
        self._archive: ArchiveReader | None = None
        self._log: FolderReader | None = None
        self._lost: list[Lost] = []

    @property
    def lost(self) -> list[Lost]:
        """Everything passed over so far."""
        readers = [each for each in (self._archive, self._log) if each is not None]
        return [*self._lost, *(lost for each in readers for lost in each.lost)]

    async def read_batch(self) -> Batch | None:
        """The next messages that are there now, or None at the end. Does not wait for more."""
        while True:
            if self._log is None and not self._arrive():
                batch = await self._from_archive()
                if batch is not None or self._log_start() is None:
                    return batch
                continue
            assert self._log is not None
            try:
                batch = await asyncio.to_thread(self._log.read_batch)
            except OffsetUnavailable:  # retention was faster; the archive has it
                self.close()
                continue
            if batch is None:
                return None
            if batch.first_offset > self.position and self._was_overtaken():
                self.close()
                continue
            self.position = batch.first_offset + len(batch.messages)
            return batch

    def close(self) -> None:
        """Gives back what is open; reading on opens it again."""
        if self._log is not None:
            # What lies ahead is not lost yet: it is looked for again, in the archive first.
            self._lost += [one for one in self._log.lost if one.first_offset < self.position]
            self._log.close()
            self._log = None

    def _log_start(self) -> int | None:
        """The name of the log's first file; None where there is none."""
        firsts = log_files(self._files, self._log_folder)
        return firsts[0] if firsts else None

    def _was_overtaken(self) -> bool:
        """Whether retention removed files that were still to be read; the archive has them."""
        start = self._log_start()
        return start is None or start > self.position

    def _arrive(self) -> bool:
        """Goes over to the log where that has the position."""
        start = self._log_start()
        if start is None or self.position < start:
            return False
        try:
            self._log = FolderReader(self._files, self._log_folder, self.position)
        except OffsetUnavailable as error:
            if self.position < error.earliest:  # retention was faster
                return False
            raise
        if self._archive is not None:
            self._lost += self._archive.lost
            self._archive = None
        return True

    async def _from_archive(self) -> Batch | None:
        """None where the position moved, or the log should be looked at again."""
        if self._archive is None or self._archive.position != self.position:
            self._archive = ArchiveReader(self._catalog, self.position)
        batch = await self._archive.read_batch()
        self.position = self._archive.position
        if batch is None:
            self._refuse_gap()
        return batch

    def _refuse_gap(self) -> None:
        """At the end of the archive the log goes on, or nobody has what comes next."""
        start = self._log_start()
        if start is not None and start > self.position:
            text = f"offset {self.position} is nowhere: the archive ends there, the log begins at"
            raise OffsetUnavailable(f"{text} {start}", earliest=start, end=start)
