"""Archives open stores: the lease of each is kept, and its log is uploaded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from penstock.archive.catalog import Catalog
from penstock.archive.claim import claim
from penstock.archive.settings import DEFAULT_ROOT
from penstock.archive.sources import OpenLog
from penstock.archive.uploader import Uploader
from penstock.metrics import Metrics, names, shared_metrics
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import ArchiveConflict, Fenced, MetadataUnavailable, ObjectsUnavailable
from penstock.storage.metadata import Leases

if TYPE_CHECKING:
    import uuid

    from penstock.archive.claim import Claim
    from penstock.archive.settings import ArchiveSettings
    from penstock.log import Log
    from penstock.storage import Partition
    from penstock.storage.metadata import Lease, Metadata
    from penstock.storage.objects import ObjectStore

_LOG = logging.getLogger(__name__)


class Archiving:
    """One topic partition that is being archived. The log is its caller's, to close after this."""

    def __init__(self, catalog: Catalog, lease: Lease, log: Log, uploader: Uploader) -> None:
        """Use `Archiver.attach`."""
        self.catalog = catalog
        self.lease = lease
        self.log = log
        self.uploader = uploader
        self._uploading: asyncio.Task[None] | None = None
        self._fenced: Fenced | None = None
        self._closed = False

    @property
    def failure(self) -> Fenced | None:
        """Why this owner may do nothing more; None while it may."""
        return self._fenced

    def counts(self) -> dict[str, float]:
        """What was uploaded, and how much is left, under the names of metrics."""
        totals, archived = self.uploader.totals, self.uploader.archived_offset
        return {
            names.ARCHIVE_OBJECTS: totals.objects,
            names.ARCHIVE_MESSAGES: totals.messages,
            names.ARCHIVE_BYTES: totals.bytes,
            names.ARCHIVE_FAILURES: totals.failures,
            names.ARCHIVE_LAG: max(self.log.end_offset - (archived or 0), 0),
        }

    def check(self) -> None:
        """Fenced where another has the topic, or may have. Call it last before acknowledging."""
        try:
            self.lease.check()
        except Fenced as error:
            self._fenced = error
            raise

    def begin(self) -> None:
        """Starts what goes on in the background. Fenced: the topic was lost while it was opened."""
        self.lease.check()
        self._uploading = asyncio.ensure_future(self.uploader.run())
        for task in (self.lease.keeping, self._uploading):
            task.add_done_callback(self._notice_end)

    async def close(self, *, upload: bool = True) -> None:
        """Uploads what is left (unless told not to), and gives the lease back.

        Idempotent. A store that does not answer leaves the rest to the next opening.
        """
        if self._closed:
            return
        self._closed = True
        self.uploader.stop()
        if self._uploading is not None:
            self._uploading.cancel()
            await asyncio.gather(self._uploading, return_exceptions=True)
        try:
            if upload and self._fenced is None:
                with contextlib.suppress(*_LEFT_TO_THE_NEXT):
                    await self.log.flush_async()
                    await self.uploader.drain()
        finally:
            with contextlib.suppress(MetadataUnavailable):
                await self.lease.release()

    def _notice_end(self, task: asyncio.Task[None]) -> None:
        """The lease or the uploads ended: the topic is another's, and so the other ends too."""
        if task.cancelled() or self._closed:
            return
        error = task.exception()
        if isinstance(error, Fenced):
            self._fenced = error
            _LOG.error("%s: %s", self.catalog.topic, error)
        elif error is not None:
            _LOG.critical("%s: the archive stopped", self.catalog.topic, exc_info=error)
            self.uploader.failure = f"it stopped: {error}"
        self.uploader.stop()


class Archiver:
    """Archives the stores of one process. For one event loop."""

    def __init__(
        self,
        objects: ObjectStore,
        metadata: Metadata,
        *,
        directory: uuid.UUID,
        settings: ArchiveSettings | None = None,
        root: str = DEFAULT_ROOT,
        ttl_s: float = 15.0,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """`directory` is the data directory's identity, and owns the leases of its stores.

        It is the same after a restart, and nobody else's.
        """
        self._objects = objects
        self._metadata = metadata
        self._directory = directory
        self._settings = settings
        self._root = root
        self._clock = clock or SystemClock()
        self._leases = Leases(metadata, ttl_s=ttl_s, clock=self._clock)
        self._attached: list[Archiving] = []
        self._metrics = metrics or shared_metrics()

    def catalog(self, partition: Partition) -> Catalog:
        """Where the partition's archive is: for readers, and for `end_offset` before opening."""
        return Catalog(
            self._objects, self._metadata, partition.topic, partition.number, root=self._root
        )

    async def claim(self, partition: Partition) -> Claim:
        """The topic for this owner, before its store is opened; see `claim.claim`."""
        catalog, owner = self.catalog(partition), str(self._directory)
        return await claim(catalog, self._leases, owner, partition.log_folder)

    async def attach(self, partition: Partition, log: Log, claim: Claim) -> Archiving:
        """Archives the log of an open store from now on."""
        uploader = Uploader(
            claim.catalog,
            claim.lease,
            partition.folder,
            OpenLog(log),
            self._settings,
            directory=self._directory,
            clock=self._clock,
        )
        archiving = Archiving(claim.catalog, claim.lease, log, uploader)
        try:
            archiving.begin()
        except BaseException:
            await archiving.close(upload=False)
            raise
        self._attached.append(archiving)
        self._metrics.watch_archive(f"{partition.topic}/{partition.number}", archiving.counts)
        return archiving

    async def detach(self, archiving: Archiving) -> None:
        """Stops archiving one of them."""
        self._attached.remove(archiving)
        await archiving.close()

    def failures(self) -> list[str]:
        """What is wrong at present, for people to see."""
        found = [(one.catalog.topic, one.failure or one.uploader.failure) for one in self._attached]
        return [f"{topic} is not archived: {why}" for topic, why in found if why is not None]

    async def close(self) -> None:
        """Hands everything over. Before the stores are closed."""
        attached, self._attached = self._attached, []
        await asyncio.gather(*(one.close() for one in attached))


_LEFT_TO_THE_NEXT = (Fenced, ObjectsUnavailable, MetadataUnavailable, ArchiveConflict)
