"""One stream over everything a topic has: archive, then log files, then cache, then live."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.archive.reader import ArchiveReader
from penstock.log.follow import FolderReader
from penstock.log.survey import log_files
from penstock.model.errors import OffsetUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from penstock.archive.catalog import Catalog
    from penstock.log import Log
    from penstock.log.cache import Batch
    from penstock.log.inventory import Lost
    from penstock.log.reader import Reader
    from penstock.storage.files import Files

_POLL_S = 0.05


class Local(Protocol):
    """The part of a topic that is on this machine."""

    def start_offset(self) -> int | None:
        """The oldest offset here; None where nothing is."""
        ...

    def go_to(self, offset: int) -> None:
        """Reads from there on; OffsetUnavailable where that is not here."""
        ...

    async def read_batch(self) -> Batch | None:
        """The next messages that are here now, or None. Does not wait for more."""
        ...

    async def wait(self) -> bool:
        """Waits for more; False where none will ever come."""
        ...

    @property
    def lost(self) -> list[Lost]:
        """What was passed over since `go_to`."""
        ...

    def close(self) -> None:
        """Gives back what is open."""
        ...


class LiveLog:
    """The log that this process writes: its files, its cache, and what comes."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._reader: Reader | None = None

    def start_offset(self) -> int | None:
        """Of the log."""
        return self._log.start_offset

    def go_to(self, offset: int) -> None:
        """A reader from there."""
        self._reader = self._log.read(offset, follow=True)

    async def read_batch(self) -> Batch | None:
        """From the cache, or from a file in a thread."""
        assert self._reader is not None
        if self._log.cached(self._reader.position) is not None:
            return self._reader.read_batch()
        return await asyncio.to_thread(self._reader.read_batch)

    async def wait(self) -> bool:
        """Until the next commit."""
        assert self._reader is not None
        commit = self._log.next_commit(self._reader.position)
        if commit is None and self._reader.position >= self._log.end_offset:
            self._log.check_readable()
            return False
        if commit is not None:
            await commit.settle_async()
        return True

    @property
    def lost(self) -> list[Lost]:
        """Of the reader."""
        return self._reader.lost if self._reader is not None else []

    def close(self) -> None:
        """Closes the reader."""
        if self._reader is not None:
            self._reader.close()


class LogFolder:
    """The log files that another process writes, or nobody does."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._reader: FolderReader | None = None

    def start_offset(self) -> int | None:
        """The name of the first file."""
        firsts = log_files(self._files, self._folder)
        return firsts[0] if firsts else None

    def go_to(self, offset: int) -> None:
        """A reader from there."""
        self.close()
        self._reader = FolderReader(self._files, self._folder, offset)

    async def read_batch(self) -> Batch | None:
        """From a file, in a thread."""
        assert self._reader is not None
        return await asyncio.to_thread(self._reader.read_batch)

    async def wait(self) -> bool:
        """Looks again a little later, for ever."""
        await asyncio.sleep(_POLL_S)
        return True

    @property
    def lost(self) -> list[Lost]:
        """Of the reader."""
        return self._reader.lost if self._reader is not None else []

    def close(self) -> None:
        """Closes the reader."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


async def earliest_offset(catalog: Catalog, local: Local) -> int:
    """Where a topic begins: in its archive, else in its log, else at 0."""
    first = await catalog.first()
    return first.start_offset if first is not None else local.start_offset() or 0


class TieredReader:
    """A position in a topic, wherever its messages are. For one task at a time.

    Messages come in order, without gap or repetition; what is damaged is passed over and listed in
    `lost`. ArchiveUnavailable says which offsets cannot be had now: reading on later tries again.
    OffsetUnavailable: retention removed what was to come next. Safe to cancel.
    """

    def __init__(self, catalog: Catalog, local: Local, offset: int) -> None:
        self.position = offset
        self._catalog = catalog
        self._local = local
        self._archive: ArchiveReader | None = None
        self._is_local = False
        self._lost: list[Lost] = []

    @property
    def lost(self) -> list[Lost]:
        """Everything passed over so far."""
        here = self._local.lost if self._is_local else []
        there = self._archive.lost if self._archive is not None else []
        return [*self._lost, *there, *here]

    async def read_batch(self) -> Batch | None:
        """The next messages that are there now, or None at the end. Does not wait for more."""
        while True:
            if not self._is_local and not self._arrive():
                batch = await self._from_archive()
                if batch is not None or self._local.start_offset() is None:
                    return batch
                continue
            try:
                batch = await self._local.read_batch()
            except OffsetUnavailable:  # retention was faster; the archive has it
                self._leave()
                continue
            if batch is not None:
                self.position = batch.first_offset + len(batch.messages)
            return batch

    async def next_batch(self) -> Batch | None:
        """The next messages, waiting for them; None when the log was closed."""
        while (batch := await self.read_batch()) is None:
            if not await self._local.wait():
                return None
        return batch

    async def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        """(offset, message) for ever, or until the log is closed."""
        while (batch := await self.next_batch()) is not None:
            for at, message in enumerate(batch.messages):
                yield batch.first_offset + at, message

    def close(self) -> None:
        """Gives back what is open."""
        self._local.close()

    def _arrive(self) -> bool:
        """Goes over to the local log where that has the position."""
        start = self._local.start_offset()
        if start is None or self.position < start:
            return False
        try:
            self._local.go_to(self.position)
        except OffsetUnavailable as error:
            if self.position < error.earliest:  # retention was faster
                return False
            raise
        if self._archive is not None:
            self._lost += self._archive.lost
            self._archive = None
        self._is_local = True
        return True

    def _leave(self) -> None:
        self._lost += self._local.lost
        self._is_local = False

    async def _from_archive(self) -> Batch | None:
        """None where the position moved, or the local log should be looked at again."""
        if self._archive is None or self._archive.position != self.position:
            self._archive = ArchiveReader(self._catalog, self.position)
        batch = await self._archive.read_batch()
        self.position = self._archive.position
        if batch is None:
            self._refuse_gap()
        return batch

    def _refuse_gap(self) -> None:
        """At the end of the archive the local log goes on, or nobody has what comes next."""
        start = self._local.start_offset()
        if start is not None and start > self.position:
            text = f"offset {self.position} is nowhere: the archive ends there, the log begins at"
            raise OffsetUnavailable(f"{text} {start}", earliest=start, end=start)
