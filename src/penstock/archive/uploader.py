"""Carries a log's messages to object storage, in the background, each exactly once.

An object is uploaded under its final name, where it appears whole; then its descriptor is made, by
which it becomes part of the archive; then the checkpoint is written and the log may forget. After a
crash between any two of these the descriptors say where to go on: what was uploaded without one is
uploaded again, and the first copy is removed by `Upkeep.clean`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.archive import format as fmt
from penstock.archive.carrier import Carrier
from penstock.archive.claim import check_belongs, newest_stored
from penstock.archive.identity import establish, identity_key
from penstock.archive.rebuild import adopt, rebuild_descriptors
from penstock.archive.settings import ArchiveSettings
from penstock.archive.sources import log_identity
from penstock.archive.upkeep import Upkeep
from penstock.log.inventory import file_name
from penstock.log.survey import log_files
from penstock.model.backoff import Backoff
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import Fenced, FormatError, MetadataChanged, PenstockError
from penstock.storage.files import LocalFiles, read_whole, write_atomically

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from penstock.archive.catalog import Catalog
    from penstock.archive.format import Descriptor, Place
    from penstock.archive.sources import Source
    from penstock.storage.files import Files
    from penstock.storage.metadata import Lease

_LOG = logging.getLogger(__name__)
CHECKPOINT_NAME = "archive.ckpt"
_MAX_RETRY_S = 60.0


@dataclass(slots=True)
class UploadTotals:
    """What one uploader has done."""

    objects: int = 0
    messages: int = 0
    bytes: int = 0
    failures: int = 0


class Uploader:
    """Archives one topic partition. For one event loop; `lease` keeps others from doing the same.

    Order: objects are uploaded one by one, in the order of offsets. Retry safety: everything may be
    repeated after an error, by this object or by another in a later epoch. Fenced ends it for good.
    """

    def __init__(
        self,
        catalog: Catalog,
        lease: Lease,
        folder: Path,
        source: Source,
        settings: ArchiveSettings | None = None,
        *,
        directory: uuid.UUID,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`folder` is the partition's: its log is in `log`, its checkpoint in `archive.ckpt`.

        `directory` is the identity of the data directory that the folder is in.
        """
        self.catalog = catalog
        self.settings = settings or ArchiveSettings()
        self.totals = UploadTotals()
        self.failure: str | None = None
        """Why the last attempt failed; None after one that did not."""
        self._lease = lease
        self._directory = directory
        self._folder = folder
        self._log_folder = folder / "log"
        self._source = source
        self._files = files or LocalFiles()
        self._clock = clock or SystemClock()
        self._carrier = Carrier(catalog, lease, self._files, self._log_folder)
        self._upkeep = Upkeep(catalog, lease, self.settings, self._clock)
        self._place: Place | None = None
        self._archived: int | None = None
        self._is_certain = False  # of that; otherwise the metadata must be asked
        self._waiting_since: float | None = None
        self._stopping = asyncio.Event()

    # --- what others ask -----------------------------------------------------------------------

    @property
    def archived_offset(self) -> int | None:
        """Everything below is in the archive; None before the archive was first asked."""
        return self._archived

    def is_due(self) -> bool:
        """Whether enough bytes wait, or one message long enough."""
        end = self._source.end_offset()
        if self._archived is not None and end <= self._archived:
            self._waiting_since = None
            return False
        now = self._clock.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        offset = self._archived or 0
        position = self._place.position if self._place is not None else 0
        waited_s = now - self._waiting_since
        return (
            waited_s >= self.settings.upload_interval_s
            or self._source.waiting_bytes(offset, position) >= self.settings.upload_bytes
        )

    # --- its life ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Uploads whatever becomes due and tidies up, until `stop`. Raises Fenced, no more.

        Whatever else goes wrong (a store that does not answer, a log that cannot be read, or does
        not belong to its archive) is reported in `failure` and tried again after a pause.
        """
        backoff = Backoff(self.settings.retry_s, _MAX_RETRY_S)
        tidied_at: float | None = None
        while not self._stopping.is_set():
            try:
                if self.is_due():
                    await self.upload_once()
                    self._waiting_since = None
                now = self._clock.monotonic()
                if tidied_at is None or now - tidied_at >= self.settings.upkeep_interval_s:
                    await self.tidy()
                    tidied_at = now
                backoff.reset()
                pause_s = self.settings.poll_s
            except Fenced:
                raise
            except (PenstockError, OSError) as error:
                self._note(error)
                pause_s = backoff.next_s()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)

    def stop(self) -> None:
        """Lets `run` return when its present step is done."""
        self._stopping.set()

    async def drain(self) -> int:
        """Uploads everything that is safe on disk now; returns how many objects that took."""
        target, objects = self._source.end_offset(), 0
        while (await self._synchronised()) < target:
            if await self.upload_once() is None:
                break
            objects += 1
        return objects

    async def tidy(self) -> None:
        """Applies retention and removes what interrupted uploads left behind."""
        # Nothing is removed before the metadata is known to be that of these objects: to a lost
        # one every object looks abandoned.
        await self._synchronised()
        await self._upkeep.retain()
        await self._upkeep.clean()

    # --- one object ----------------------------------------------------------------------------

    async def upload_once(self) -> Descriptor | None:
        """Uploads the next object, however small; None where there is nothing to upload.

        Cancelled or failed, it leaves at most an object without a descriptor.
        """
        start = await self._synchronised()
        end = await asyncio.to_thread(self._plan, start)
        if end is None:
            return None
        log_id = await asyncio.to_thread(log_identity, self._files, self._log_folder)
        assert log_id is not None
        self._is_certain = False  # until the descriptor is recorded
        epoch, flags = self._lease.epoch, self._flags()
        header = fmt.Header(log_id, epoch, start, end, flags, self._directory)
        descriptor, place = await self._carrier.carry(header, self._place, self._now())
        recorded = await self._record(descriptor)
        if recorded.object_id == descriptor.object_id:
            await asyncio.to_thread(self._write_checkpoint, place, descriptor)
            self._place = place
        self._settle(recorded.end_offset)
        self._count(descriptor)
        return recorded

    async def _record(self, descriptor: Descriptor) -> Descriptor:
        """Makes the object part of the archive; the one that stands there where one does."""
        key = self.catalog.descriptor_key(descriptor.start_offset)
        data = fmt.encode_descriptor(descriptor)
        try:
            await self._lease.commit({key: data}, conditions={key: None})
        except MetadataChanged:  # an earlier attempt succeeded, though it was not answered
            standing = await self.catalog.descriptor_at(descriptor.start_offset)
            if standing is None:
                raise
            return standing
        return descriptor

    # --- where it is ---------------------------------------------------------------------------

    async def _synchronised(self) -> int:
        """The end of the archive, from the metadata where this object is not certain of it.

        ArchiveConflict before anything is added or removed: another server has the archive now.
        """
        if self._is_certain:
            await establish(self.catalog, self._lease)
        else:
            await self._know_the_archive()
            last = await self.catalog.last()
            place = await asyncio.to_thread(self._read_checkpoint)
            log_id, first, log_end = await asyncio.to_thread(self._extent)
            if first > (last.end_offset if last is not None else 0):
                await adopt(self.catalog, self._lease, last, first)
                last = await self.catalog.last()
            check_belongs(last, log_id, first, log_end)
            start = last.end_offset if last is not None else first
            self._place = place if place is not None and place.offset == start else None
            self._settle(start)
        assert self._archived is not None
        return self._archived

    def _extent(self) -> tuple[uuid.UUID | None, int, int]:
        """Whose log it is, its first offset and its end."""
        log_id = log_identity(self._files, self._log_folder)
        firsts = log_files(self._files, self._log_folder)
        end = self._source.end_offset()
        return log_id, firsts[0] if firsts else end, end

    async def _know_the_archive(self) -> None:
        """Both halves are of one archive. Where the metadata was lost, it is made again first."""
        known = await self.catalog.metadata.get(identity_key(self.catalog))
        if known is None and (newest := await newest_stored(self.catalog)) is not None:
            # Looked at first: who cannot go on with the objects does not take them over either.
            check_belongs(newest, *await asyncio.to_thread(self._extent))
            self.failure = "the metadata is lost: the objects are being described again"
            _LOG.warning("%s: %s", self.catalog.topic, self.failure)
            made, left = await rebuild_descriptors(self.catalog, self._lease)
            text = "%s: %d objects are described again, %d left alone"
            _LOG.warning(text, self.catalog.topic, len(made), len(left))
        self._upkeep.mark = await establish(self.catalog, self._lease)

    def _settle(self, archived: int) -> None:
        self._archived, self._is_certain = archived, True
        self.failure = None
        self._source.let_go(archived)

    def _plan(self, start: int) -> int | None:
        """Where the next object ends: with a file once it is large enough, else with the log."""
        end = self._source.end_offset()
        if start >= end:
            return None
        size = 0
        firsts = log_files(self._files, self._log_folder)
        for first, following in zip(firsts, [*firsts[1:], end], strict=True):
            if following > start:
                size += self._size_of(file_name(first))
                if size >= self.settings.upload_bytes:
                    return min(following, end)
        return end

    def _size_of(self, name: str) -> int:
        try:
            return (self._log_folder / name).stat().st_size
        except FileNotFoundError:  # removed just now
            return 0

    def _flags(self) -> int:
        return fmt.ZSTD if self.settings.compression else 0

    def _read_checkpoint(self) -> Place | None:
        """A lost or damaged checkpoint costs the reading of one log file, never data."""
        try:
            return fmt.decode_checkpoint(read_whole(self._files, self._folder / CHECKPOINT_NAME))
        except FileNotFoundError:
            return None
        except FormatError as error:
            _LOG.warning("%s: %s", self._folder / CHECKPOINT_NAME, error)
            return None

    def _write_checkpoint(self, place: Place | None, descriptor: Descriptor) -> None:
        if place is not None and place.offset == descriptor.end_offset:
            data = fmt.encode_checkpoint(place, descriptor.object_id, self._now())
            write_atomically(self._files, self._folder / CHECKPOINT_NAME, data)

    def _now(self) -> str:
        now = datetime.fromtimestamp(self._clock.wall_ns() / 1e9, UTC)
        return now.isoformat(timespec="milliseconds")

    def _count(self, descriptor: Descriptor) -> None:
        self.totals.objects += 1
        self.totals.messages += descriptor.messages
        self.totals.bytes += descriptor.size

    def _note(self, error: Exception) -> None:
        self.totals.failures += 1
        if self.failure != str(error):
            _LOG.warning("%s is not archived at present: %s", self.catalog.topic, error)
        self.failure = str(error)
        self._is_certain = False
