"""Opens topics over shared object and metadata stores: owned by one, readable from the beginning.

A topic that is opened on an empty disk goes on behind its archive. A local log that does not belong
to the archive, because another owner went on meanwhile, is set aside: never deleted, never served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from typing import TYPE_CHECKING, Literal

from penstock.archive.archiving import Archiving
from penstock.archive.catalog import Catalog
from penstock.archive.claim import claim
from penstock.archive.settings import DEFAULT_ROOT
from penstock.archive.tiered import LiveLog, TieredReader, earliest_offset
from penstock.archive.uploader import CHECKPOINT_NAME
from penstock.log import Environment, Log
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import ArchiveConflict
from penstock.storage.files import LocalFiles
from penstock.storage.metadata import Leases

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.archive.claim import Claim
    from penstock.archive.progress import Progress
    from penstock.archive.settings import ArchiveSettings
    from penstock.log.cache import Batch
    from penstock.model.settings import LogSettings
    from penstock.model.topics import Topic
    from penstock.storage import DataDirectory, Partition
    from penstock.storage.files import Buffer, Files
    from penstock.storage.metadata import Metadata
    from penstock.storage.objects import ObjectStore

_LOG = logging.getLogger(__name__)


class Topics:
    """Opens and caches topics. For one event loop.

    `owner` names this machine or data directory, the same after a restart: it takes its own leases
    back at once, others after they have been silent for `ttl_s`.
    """

    def __init__(
        self,
        directory: DataDirectory,
        objects: ObjectStore,
        metadata: Metadata,
        *,
        owner: str,
        log_settings: LogSettings | None = None,
        archive_settings: ArchiveSettings | None = None,
        root: str = DEFAULT_ROOT,
        ttl_s: float = 15.0,
        progress_interval_s: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        self._directory = directory
        self._objects = objects
        self._metadata = metadata
        self._owner = owner
        self._log_settings = log_settings
        self._archive_settings = archive_settings
        self._root = root
        self._progress_interval_s = progress_interval_s
        self._clock = clock or SystemClock()
        self._leases = Leases(metadata, ttl_s=ttl_s, clock=self._clock)
        self._opened: dict[tuple[Topic, int], asyncio.Task[ArchivedTopic]] = {}

    async def open(self, topic: Topic, partition: int = 0) -> ArchivedTopic:
        """The topic, opened once. LeaseHeld: another owner has it. Fenced ones are opened anew."""
        key = (topic, partition)
        task = self._opened.get(key)
        if task is not None and task.done() and (task.exception() or task.result().failure):
            if task.exception() is None:
                await task.result().close(upload=False)
            task = None
        if task is None:
            task = self._opened[key] = asyncio.ensure_future(self._open(topic, partition))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Uploads what is left, gives the leases back and closes the logs."""
        tasks, self._opened = list(self._opened.values()), {}
        for task in tasks:
            with contextlib.suppress(Exception):
                await task
        opened = [task.result() for task in tasks if task.exception() is None]
        await asyncio.gather(*(topic.close() for topic in opened))

    async def _open(self, topic: Topic, number: int) -> ArchivedTopic:
        partition = self._directory.partition(topic, number)
        await asyncio.to_thread(_refuse_where_open, LocalFiles(), partition)
        catalog = Catalog(self._objects, self._metadata, topic, number, root=self._root)
        claimed = await self._claim(catalog, partition)
        try:
            log = await asyncio.to_thread(self._open_log, partition, claimed.end_offset)
        except BaseException:
            await claimed.lease.release()
            raise
        opened = ArchivedTopic(
            catalog,
            claimed.lease,
            partition.folder,
            log,
            self._archive_settings,
            directory=uuid.UUID(self._directory.create()),
            clock=self._clock,
        )
        try:
            await opened.begin(self._progress_interval_s)
        except BaseException:
            await opened.close(upload=False)
            raise
        return opened

    async def _claim(self, catalog: Catalog, partition: Partition) -> Claim:
        claiming = (catalog, self._leases, self._owner, partition.log_folder)
        try:
            return await claim(*claiming)
        except ArchiveConflict as conflict:
            await asyncio.to_thread(set_aside, LocalFiles(), partition.folder, conflict)
            return await claim(*claiming)

    def _open_log(self, partition: Partition, least_offset: int) -> Log:
        return Log.open(
            partition.log_folder,
            self._log_settings,
            name=f"{partition.topic}/{partition.number}",
            env=Environment(clock=self._clock),
            least_offset=least_offset,
        )


class ArchivedTopic(Archiving):
    """One topic partition with its archive: appended to here, read from anywhere on."""

    async def append(self, message: Buffer) -> int:
        """Returns the offset when the message is durable here and this owner still has the topic.

        Fenced: another owner took over; the message may be in the log here, where nobody reads it.
        """
        self.check()
        append = await self.log.append_async(message)
        await append.durable
        self.check()  # the last thing before the acknowledgement
        return append.offset

    def read(self, offset: int = 0) -> TieredReader:
        """A reader from `offset` on, over archive, files, cache and what comes."""
        return TieredReader(self.catalog, LiveLog(self.log), offset)

    async def subscribe(
        self, name: str, start: Literal["earliest", "latest"] | int = "earliest"
    ) -> TopicSubscriber:
        """Goes on where the subscriber was, here or elsewhere; a new one begins at `start`."""
        offset = self.progress.offset(name)
        if offset is None:
            earliest = await earliest_offset(self.catalog, LiveLog(self.log))
            named = {"earliest": earliest, "latest": self.log.end_offset}
            offset = named[start] if isinstance(start, str) else start
        self.progress.note(name, offset)
        return TopicSubscriber(name, self.read(offset), self.progress)

    async def close(self, *, upload: bool = True) -> None:
        """`Archiving.close`, and closes the log."""
        try:
            await super().close(upload=upload)
        finally:
            await self.log.close_async()


class TopicSubscriber:
    """A named reader whose progress survives the topic's owner. For one task at a time."""

    def __init__(self, name: str, reader: TieredReader, progress: Progress) -> None:
        """Use `ArchivedTopic.subscribe`."""
        self.name = name
        self._reader = reader
        self._progress = progress

    async def next_batch(self) -> Batch | None:
        """The next messages, waiting for them; None when the log was closed."""
        return await self._reader.next_batch()

    async def read_batch(self) -> Batch | None:
        """The next messages that are there now, or None."""
        return await self._reader.read_batch()

    def ack(self, offset: int) -> None:
        """Everything below `offset` is done; saved with the next save of the progress."""
        self._progress.note(self.name, offset)

    def close(self) -> None:
        """Gives back what is open."""
        self._reader.close()


def _refuse_where_open(files: Files, partition: Partition) -> None:
    """LogLocked before a new epoch fences the process that has the log open, for nothing."""
    if files.names(partition.log_folder):
        files.lock(partition.log_folder / ".lock").release()


def set_aside(files: Files, folder: Path, conflict: ArchiveConflict) -> Path:
    """Renames a log that does not belong to its archive; returns its new place."""
    taken = set(files.names(folder))
    aside = next(n for n in range(1, len(taken) + 2) if f"log.aside-{n}" not in taken)
    target = folder / f"log.aside-{aside}"
    _LOG.error("%s is set aside as %s: %s", folder / "log", target.name, conflict)
    # What is renamed holds messages that nobody else may have: it is never deleted.
    files.rename(folder / "log", target)
    if CHECKPOINT_NAME in taken:
        files.remove(folder / CHECKPOINT_NAME)
    files.sync_folder(folder)
    return target
