"""Carries one range of a log to object storage: read, verified, encoded, uploaded as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from penstock.archive import format as fmt
from penstock.archive.encoder import ObjectEncoder
from penstock.archive.format import Place
from penstock.log.cache import Batch
from penstock.log.follow import FolderReader
from penstock.log.format import FRAME_BYTES
from penstock.log.survey import log_files
from penstock.model.errors import Damaged, ObjectsUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from penstock.archive.catalog import Catalog
    from penstock.archive.format import Descriptor
    from penstock.storage.files import Files
    from penstock.storage.metadata import Lease

_LOG = logging.getLogger(__name__)
_LOOKS = 100
"""How often the end of a file is looked at again before it counts as unreadable."""
_LOOK_PAUSE_S = 0.02


class Carrier:
    """Makes the objects of one archive; holds a few parts of one at a time."""

    def __init__(self, catalog: Catalog, lease: Lease, files: Files, log_folder: Path) -> None:
        self._catalog = catalog
        self._lease = lease
        self._files = files
        self._log_folder = log_folder

    async def carry(
        self, header: fmt.Header, place: Place | None, now: str
    ) -> tuple[Descriptor, Place | None]:
        """Uploads the header's range, from `place` on; its descriptor, and the place behind it.

        Cancelled or failed, it leaves no object, or one that nothing describes. Fenced: another
        owner took over meanwhile.
        """
        encoder = ObjectEncoder(header)
        object_id = fmt.object_id(header.epoch, header.start_offset, header.end_offset)
        key = self._catalog.object_key(object_id)
        first = await asyncio.to_thread(self._first_readable, header)
        tail = LogTail(self._files, self._log_folder, first, place)
        try:
            async with self._catalog.objects.upload(key) as upload:
                # Closed at once, so that nobody reads when the tail is closed.
                async with contextlib.aclosing(self._blocks(tail, encoder, header)) as blocks:
                    async for block in blocks:
                        await upload.write(block)
                self._lease.check()
            behind = tail.place
        finally:
            tail.close()
        for lost in tail.lost:
            _LOG.error("%s: not in the archive: %s", self._catalog.topic, lost)
        etag = await self._confirmed(key, encoder.size)
        return _describe(header, object_id, encoder, etag, now), behind

    async def _confirmed(self, key: str, size: int) -> str | None:
        """The object's etag. The log may forget what is in it, so it is looked at once more."""
        info = await self._catalog.objects.head(key)
        if info.size != size:
            raise ObjectsUnavailable(f"{key} has {info.size} bytes, not the {size} sent")
        return info.version.etag

    def _first_readable(self, header: fmt.Header) -> int:
        """Where reading begins: behind what somebody removed from the log before it was archived.

        That is lost, and the descriptor says so; to wait for it would lose what follows too.
        """
        firsts = log_files(self._files, self._log_folder)
        if not firsts or firsts[0] <= header.start_offset:
            return header.start_offset
        gone = f"offsets {header.start_offset} to {firsts[0] - 1}"
        _LOG.error("%s: %s left the log before they were archived", self._catalog.topic, gone)
        return firsts[0]

    async def _blocks(
        self, tail: LogTail, encoder: ObjectEncoder, header: fmt.Header
    ) -> AsyncGenerator[bytes]:
        """The object's bytes; the next ones are read while these are on their way."""
        end = header.end_offset
        yield encoder.begin()
        reading = asyncio.ensure_future(self._next_blocks(tail, encoder, end))
        try:
            while (blocks := await asyncio.shield(reading)) is not None:
                reading = asyncio.ensure_future(self._next_blocks(tail, encoder, end))
                for block in blocks:
                    yield block
        finally:
            # A thread is not cancelled: it is waited for, since it reads what is closed next.
            await asyncio.gather(reading, return_exceptions=True)
        for block in encoder.finish():
            yield block

    async def _next_blocks(
        self, tail: LogTail, encoder: ObjectEncoder, end: int
    ) -> list[bytes] | None:
        """None at the end. A file that ends before is looked at again: it may just be replaced."""
        for _ in range(_LOOKS):
            blocks = await asyncio.to_thread(_read_and_encode, tail, encoder, end)
            if blocks is not None:
                return blocks
            if tail.position >= end:
                return None
            await asyncio.sleep(_LOOK_PAUSE_S)
        raise Damaged(f"the log cannot be read from offset {tail.position} to {end}")


def _describe(
    header: fmt.Header, object_id: str, encoder: ObjectEncoder, etag: str | None, now: str
) -> Descriptor:
    return fmt.Descriptor(
        object_id=object_id,
        start_offset=header.start_offset,
        end_offset=header.end_offset,
        size=encoder.size,
        etag=etag,
        checksum=encoder.checksum,
        created_at=now,
        completed=True,
        offset_index=tuple(encoder.index),
        epoch=header.epoch,
        log_id=str(header.log_id),
        messages=encoder.messages,
        compression="zstd" if header.flags & fmt.ZSTD else None,
        lost=tuple(encoder.lost),
        source=None if header.source is None else str(header.source),
    )


def _read_and_encode(tail: LogTail, encoder: ObjectEncoder, end: int) -> list[bytes] | None:
    batch = tail.read(end)
    return encoder.add(*batch) if batch is not None else None


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
